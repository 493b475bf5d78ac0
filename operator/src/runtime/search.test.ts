import assert from "node:assert/strict";
import { test } from "node:test";
import type { Runtime } from "@agentworlds/crds";
import type { ListedCompute, RuntimeDriver } from "./contract.ts";
import { RuntimeError } from "./errors.ts";
import { createComputeSearch, type Wanted } from "./search.ts";
import { runtimeOf } from "./test-objects.test-kit.ts";

const { signal } = new AbortController();

/** What the host of an address says: its engine and the boots of which it has a container, or nothing at all. */
type Host = { readonly engine?: string; readonly containers: readonly string[] } | "silent" | "broken";

const runtime = (name: string, hosts: readonly string[]): Runtime =>
  runtimeOf({
    metadata: { name },
    spec: { docker: { hosts: hosts.map((host) => ({ name: host, endpoint: `tcp://${host}:2376` })) } },
  });

const listed = (id: string): ListedCompute => ({
  id,
  owner: {
    installation: "install",
    namespace: "team",
    sandbox: "one",
    sandboxUid: id.replace(/^aw-(.*)-\d+$/, "$1"),
    boot: Number(id.at(-1)),
  },
  state: "Running",
});

async function search(
  runtimes: readonly Runtime[],
  hosts: Readonly<Record<string, Host>>,
  wanted: Partial<Wanted> = {},
) {
  const { found, silent } = await createComputeSearch({
    installation: "install",
    runtimes: { list: () => runtimes },
    drivers: {
      driverFor: async (_runtime, name) => {
        const host = hosts[name];
        if (host === undefined || host === "silent") throw new RuntimeError("HostUnreachable", "no answer");
        if (host === "broken") throw new TypeError("a defect");
        return only({
          list: async (installation) => (installation === "install" ? host.containers.map(listed) : []),
          identity: async () => host.engine ?? name,
        });
      },
    },
  }).containers({ sandboxUid: "mine", ...wanted }, signal);
  return { found: found.map((one) => `${one.what.id} ${one.runtime}/${one.host} ${one.engine}`), silent };
}

function only(part: Pick<RuntimeDriver, "list" | "identity">): RuntimeDriver {
  return part as RuntimeDriver;
}

test("every host of every Runtime is asked, and only what is the Sandbox's own is found", async () => {
  const runtimes = [runtime("one", ["a", "b"]), runtime("two", ["c"])];
  const hosts = { a: { containers: ["aw-other-1"] }, b: { containers: [] }, c: { containers: ["aw-mine-2"] } };
  assert.deepEqual(await search(runtimes, hosts), { found: ["aw-mine-2 two/c c"], silent: [] });
});

test("a Runtime that is known for certain is the only one asked", async () => {
  const runtimes = [runtime("one", ["a"]), runtime("two", ["b"])];
  const hosts = { a: "silent", b: { containers: ["aw-mine-1"] } } as const;
  assert.deepEqual(await search(runtimes, hosts, { runtime: "two" }), { found: ["aw-mine-1 two/b b"], silent: [] });
});

test("two addresses of one engine are one container; two engines with a container of one name are two", async () => {
  const runtimes = [runtime("one", ["a", "b"])];
  const containers = ["aw-mine-1"];
  const same = { a: { engine: "e", containers }, b: { engine: "e", containers } };
  assert.deepEqual((await search(runtimes, same)).found, ["aw-mine-1 one/a e"]);
  const two = { a: { engine: "e", containers }, b: { engine: "f", containers } };
  assert.deepEqual((await search(runtimes, two)).found, ["aw-mine-1 one/a e", "aw-mine-1 one/b f"]);
});

test("a host that does not answer is named", async () => {
  const { found, silent } = await search([runtime("one", ["a", "b"])], {
    a: "silent",
    b: { containers: ["aw-mine-1"] },
  });
  assert.deepEqual(found, ["aw-mine-1 one/b b"]);
  assert.deepEqual(silent, ["one/a: no answer"]);
});

test("where no host is known nobody has said that there is nothing", async () => {
  assert.deepEqual((await search([], {})).silent, ["no Runtime exists"]);
  const gone = await search([runtime("one", ["a"])], { a: { containers: [] } }, { runtime: "two" });
  assert.deepEqual(gone.silent, ["Runtime two does not exist"]);
});

test("a defect is no silence", async () => {
  await assert.rejects(search([runtime("one", ["a"])], { a: "broken" }), TypeError);
});
