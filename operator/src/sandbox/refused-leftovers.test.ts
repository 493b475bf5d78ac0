/** What is left of a capture whose version is committed, where registry or host do not give it up: it holds no ending up. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { RegistryError } from "../registry/errors.ts";
import { RuntimeError } from "../runtime/errors.ts";
import { assertSaved, isAsleep, isReady, type Parts } from "./lives.test-kit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

const LONG = { spec: { ttlSeconds: 86_400, maxLifetimeSeconds: 86_400 } } as const;

const refusals: readonly [name: string, refuse: (parts: Parts) => void][] = [
  ["a registry that deletes nothing (405)", (parts) => refuseDeletions(parts, 405)],
  ["a login without the right to delete (403)", (parts) => refuseDeletions(parts, 403)],
  [
    "a host that refuses to remove the image, because somebody made a container of it",
    ({ host }) =>
      Object.assign(host.driver, {
        forgetCommit: () => Promise.reject(new RuntimeError("HostRefused", "409: image is being used")),
      }),
  ],
];

function refuseDeletions({ registry }: Parts, status: number): void {
  const refused = () => Promise.reject(new RegistryError("Refused", `${status}`, { status, reasons: ["UNSUPPORTED"] }));
  Object.assign(registry.client, { deleteManifest: refused });
}

async function working(refuse: (parts: Parts) => void, options: Parameters<typeof memoryParts>[0] = {}) {
  const parts = await memoryParts(options);
  refuse(parts);
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.work("one");
  return parts;
}

for (const [name, refuse] of refusals) {
  test(`${name}: an ending ends, and lets go of container and World`, async () => {
    const parts = await working(refuse, { sandbox: LONG });
    parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Hibernated" } }));
    await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
    assertSaved(parts, ["one"]);
    assert.equal(parts.world().status.holder, undefined);
    assert.deepEqual([...parts.host.containers.keys()], []);
  });

  test(`${name}: a snapshot is answered, and the session ends at its deadline`, async () => {
    const parts = await working(refuse);
    parts.ask("Snapshot", "save");
    await parts.until("answered", () => parts.sandbox()?.status.requests?.[0]?.result?.outcome === "Succeeded");
    parts.work("two");
    await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
    assertSaved(parts, ["one", "two"]);
  });
}

test("a snapshot that is committed and cannot be proved to the registry now holds no close up that discards", async () => {
  const parts = await working(() => undefined, { sandbox: LONG });
  parts.effects.killAfter("tag v1");
  parts.ask("Snapshot", "save");
  await parts.until("killed", () => parts.wasKilled());
  const digest = parts.world().status.head?.digest ?? "";
  parts.registry.failing.set(digest, "Unavailable");
  await parts.until("committed", () => parts.sandbox()?.status.operation?.stage === "Committed");
  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, closePolicy: "Discard" } }));
  parts.ask("Close", "end");
  await parts.until("Closed", () => parts.sandbox()?.status.closed !== undefined);
  assert.equal(parts.sandbox()?.status.requests?.find(({ id }) => id === "save")?.result?.digest, digest);
});
