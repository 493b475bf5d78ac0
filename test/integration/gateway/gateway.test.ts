/** The gateway behind a real kube-apiserver. One control plane serves every subject: each of them is a file in `subjects`. */
import { after, before, describe } from "node:test";
import { GROUP } from "../../../operator/src/gateway/discovery.ts";
import { type Lab, startLab } from "./fixture.ts";
import { commands } from "./subjects/commands.ts";
import { deadlines } from "./subjects/deadlines.ts";
import { files } from "./subjects/files.ts";
import { rights } from "./subjects/rights.ts";
import { serving } from "./subjects/serving.ts";
import { slowVerbs } from "./subjects/slow-verbs.ts";
import type { Stand } from "./subjects/stand.ts";

describe("the gateway behind a real kube-apiserver", () => {
  const parts = new AsyncDisposableStack();
  let stand: Stand | undefined;
  const ready = (): Stand => {
    if (stand === undefined) throw new TypeError("the gateway did not start");
    return stand;
  };

  before(async () => {
    stand = await standOn(parts.use(await startLab()));
  });
  after(() => parts.disposeAsync());

  for (const subject of [commands, files, rights, deadlines, slowVerbs, serving]) subject(ready);
});

async function standOn(lab: Lab): Promise<Stand> {
  const gateway = await lab.gateway("gateway-a", { limits: { longPollMs: 1_500, proxiedExecSeconds: 50 } });
  await lab.grant("owner", { apiGroups: [GROUP], resources: ["*"], verbs: ["*"] });
  await lab.grant("reader", { apiGroups: ["*"], resources: ["*"], verbs: ["get", "list", "watch"] });
  const owner = await lab.through({ user: "owner" });
  const reader = await lab.through({ user: "reader" });
  const stranger = await lab.through({ user: "stranger" });
  await lab.aggregated();
  return { lab, gateway, owner, reader, stranger };
}
