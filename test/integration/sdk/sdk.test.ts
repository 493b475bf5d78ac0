/** The SDK against a real kube-apiserver and the real gateway. One control plane serves every subject: each is a file in `subjects`. */
import { after, before, describe } from "node:test";
import { AgentWorlds } from "../../../sdk/src/index.ts";
import { LAB, startLab } from "../gateway/fixture.ts";
import { PlayedController } from "./played-controller.ts";
import { creation } from "./subjects/creation.ts";
import { outages } from "./subjects/outages.ts";
import { reading } from "./subjects/reading.ts";
import { sessions } from "./subjects/sessions.ts";
import type { Stand } from "./subjects/stand.ts";

describe("the SDK against a real kube-apiserver and the real gateway", () => {
  const parts = new AsyncDisposableStack();
  let stand: Stand | undefined;
  const ready = (): Stand => {
    if (stand === undefined) throw new TypeError("the gateway did not start");
    return stand;
  };

  before(async () => {
    const lab = parts.use(await startLab());
    // Shorter than the controller's answer in the tests below, so that 202 and the next poll are part of them.
    const gateway = await lab.gateway("gateway-a", { limits: { longPollMs: 400 } });
    await lab.aggregated();
    const worlds = new AgentWorlds({ kubeconfig: lab.cluster.kubeconfigPath, namespace: LAB });
    parts.defer(() => worlds.close());
    stand = { lab, gateway, controller: new PlayedController(lab), worlds };
  });
  after(() => parts.disposeAsync());

  for (const subject of [creation, sessions, reading, outages]) subject(ready);
});
