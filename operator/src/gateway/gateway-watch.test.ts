/** A controller whose clock was 31 s ahead took every gateway for dead and withdrew the API under them (review of the gateway). */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createTestClock } from "../reconciler/test-clock.test-kit.ts";
import type { GatewayLease } from "./gateway-lease.ts";
import { GatewayWatch } from "./gateway-watch.ts";

const { signal } = new AbortController();
const HOUR_MS = 3_600_000;

/** Leases that renew when told; the times in them are of a clock of their own. */
function rig() {
  const clock = createTestClock();
  const stored = new Map<string, GatewayLease>();
  let version = 1;
  const watch = new GatewayWatch({
    clock,
    leases: {
      list: async () => [...stored.values()],
      async release(name) {
        stored.delete(name);
      },
    },
  });
  return {
    clock,
    watch,
    stored,
    renew(name: string, renewTime = "2020-01-01T00:00:00.000000Z") {
      const metadata = {
        name,
        namespace: "system",
        uid: `uid-${name}`,
        resourceVersion: String(version++),
        annotations: { "agentworlds.dev/gateway-port": "8443" },
      };
      stored.set(name, { metadata, spec: { renewTime } });
    },
    async names() {
      return (await watch.live(signal)).map(({ name }) => name);
    },
    /** Looks every ten seconds, as the controller does. */
    async lookFor(milliseconds: number) {
      for (let passed = 0; passed < milliseconds; passed += 10_000) {
        await clock.advance(10_000);
        await watch.live(signal);
      }
    },
  };
}

for (const [skew, renewTime] of [
  ["years behind", "2020-01-01T00:00:00.000000Z"],
  ["years ahead", "2040-01-01T00:00:00.000000Z"],
] as const) {
  test(`a gateway that renews lives, though its clock is ${skew}`, async () => {
    const it = rig();
    for (let renewals = 0; renewals < 8; renewals++) {
      it.renew("a", renewTime);
      assert.deepEqual(await it.names(), ["a"]);
      await it.clock.advance(10_000);
    }
  });

  test(`a gateway that no longer renews is dead after thirty seconds, though its clock is ${skew}`, async () => {
    const it = rig();
    it.renew("a", renewTime);
    assert.deepEqual(await it.names(), ["a"], "a first look proves nothing");
    await it.lookFor(30_000);
    assert.deepEqual(await it.names(), ["a"]);
    await it.lookFor(10_000);
    assert.deepEqual(await it.names(), []);
    it.renew("a", renewTime);
    assert.deepEqual(await it.names(), ["a"], "it lives again when it renews");
  });
}

test("somebody sets this machine's clock: nobody dies and nobody lives longer", async () => {
  const it = rig();
  it.renew("a");
  await it.names();
  it.clock.jump(HOUR_MS);
  assert.deepEqual(await it.names(), ["a"]);
  it.clock.jump(-2 * HOUR_MS);
  await it.lookFor(40_000);
  assert.deepEqual(await it.names(), []);
});

test("after an outage in which nobody could look, every gateway has its thirty seconds again", async () => {
  const it = rig();
  it.renew("a");
  await it.names();
  await it.clock.advance(5 * 60_000);
  assert.deepEqual(await it.names(), ["a"]);
  await it.lookFor(40_000);
  assert.deepEqual(await it.names(), []);
});

test("the Lease of the long dead is removed, that of the living never", async () => {
  const it = rig();
  it.renew("dead");
  for (let minute = 0; minute < 11; minute++) {
    it.renew("alive");
    await it.lookFor(60_000);
  }
  assert.deepEqual([...it.stored.keys()], ["alive"]);
});

test("a fresh Lease is no proof: only one that renews while it is waited for counts", async () => {
  const it = rig();
  it.renew("killed");
  it.renew("alive");
  const proven = it.watch.proven(signal);
  await it.clock.advance(5_000);
  it.renew("alive");
  await it.clock.advance(1_000);
  assert.deepEqual(
    (await proven).map(({ name, port }) => [name, port]),
    [["alive", 8443]],
  );
  const nobody = it.watch.proven(signal);
  await it.clock.advance(13_000);
  assert.deepEqual(await nobody, []);
});
