import assert from "node:assert/strict";
import { test } from "node:test";
import type { RuntimeDriver } from "../runtime/contract.ts";
import { RuntimeError } from "../runtime/errors.ts";
import { runtimeOf } from "../runtime/test-objects.test-kit.ts";
import { createComputeOf } from "./compute-of.ts";

const { signal } = new AbortController();

/** What each host of the Runtime `local` says: UIDs of the Sandboxes whose containers it has, or nothing at all. */
const asked = (hosts: Record<string, readonly string[] | "silent">) => {
  const named = Object.keys(hosts).map((name) => ({ name, endpoint: `tcp://${name}:2376` }));
  return createComputeOf({
    installation: "install",
    runtimes: { list: () => (named.length === 0 ? [] : [runtimeOf({ spec: { docker: { hosts: named } } })]) },
    drivers: {
      driverFor: async (_runtime, host) => {
        const uids = hosts[host];
        if (uids === undefined || uids === "silent") throw new RuntimeError("HostUnreachable", "no answer");
        const list: RuntimeDriver["list"] = async (installation) =>
          uids.map((sandboxUid) => ({
            id: `aw-${sandboxUid}-1`,
            owner: { installation, namespace: "team", sandbox: "one", sandboxUid, boot: 1 },
            state: "Exited",
          }));
        return only({ list });
      },
    },
  })("sandbox-uid", signal);
};

function only(part: Pick<RuntimeDriver, "list">): RuntimeDriver {
  return part as RuntimeDriver;
}

const cases: [name: string, hosts: Parameters<typeof asked>[0], want: string][] = [
  ["every host was asked and none has any", { a: [], b: ["another"] }, "none"],
  ["one of them has one", { a: [], b: ["sandbox-uid"] }, "some"],
  ["a silent host proves nothing", { a: [], b: "silent" }, "unknown"],
  ["what is found outweighs what is silent", { a: "silent", b: ["sandbox-uid"] }, "some"],
  ["without a host nobody has said anything", {}, "unknown"],
];
for (const [name, hosts, want] of cases) test(name, async () => assert.equal(await asked(hosts), want));
