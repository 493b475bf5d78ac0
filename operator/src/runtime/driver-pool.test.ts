import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate } from "node:timers/promises";
import type { Runtime, RuntimeHost } from "@agentworlds/crds";
import type { ResourceClient } from "../kube/contract.ts";
import { ApiError, ConnectionError } from "../kube/errors.ts";
import { SECRETS } from "../kube/resource-types.ts";
import { silentLog } from "../reconciler/log.ts";
import { createTestClock } from "../reconciler/test-clock.test-kit.ts";
import type { RuntimeDriver } from "./contract.ts";
import { createDriverPool, type HostTls, type SecretObject } from "./driver-pool.ts";
import { FakeDriver } from "./fake/driver.ts";
import { FakeHost } from "./fake/host.ts";
import { memoryResource } from "./memory-resource.test-kit.ts";
import { runtimeOf, T0 } from "./test-objects.test-kit.ts";

const { signal } = new AbortController();
const RETIRED_MS = 600_000;
const SECRET = { namespace: "system", name: "tls" };
const base64 = (text: string): string => Buffer.from(text).toString("base64");
const secretOf = (cert: string): SecretObject => ({
  metadata: { ...SECRET, uid: "u", resourceVersion: "1" },
  data: { "tls.crt": base64(cert), "tls.key": base64("key"), "ca.crt": base64("ca") },
});

/** A driver that says when it was closed, and with how much patience. */
class Recorded extends FakeDriver {
  readonly made: { endpoint: string; tls: HostTls | undefined };
  closed: "no" | "patiently" | "at once" = "no";

  constructor(made: { endpoint: string; tls: HostTls | undefined }) {
    super(new FakeHost(), "i");
    this.made = made;
  }

  override async close(patience?: AbortSignal): Promise<void> {
    this.closed = patience === undefined || patience.aborted ? "at once" : "patiently";
  }
}

const HOSTS: RuntimeHost[] = [
  { name: "a", endpoint: "unix:///a.sock" },
  { name: "b", endpoint: "tcp://10.0.0.1:2376", tlsSecretRef: { name: "tls" } },
];

function setup() {
  const clock = createTestClock(T0);
  const drivers: Recorded[] = [];
  const runtimes = new Map<string, Runtime>();
  const show = (...hosts: RuntimeHost[]) => runtimes.set("local", runtimeOf({ spec: { docker: { hosts } } }));
  const secrets = memoryResource<SecretObject>(SECRETS, [secretOf("first")]);
  let failure: Error | undefined;
  let reads = 0;
  /** Has every read of a Secret from now on fail; the function it returns counts them. */
  const failReads = (by: Error | undefined) => {
    failure = by;
    reads = 0;
    return () => reads;
  };
  const readable: ResourceClient<SecretObject> = {
    ...secrets,
    get: async (...call) => {
      reads++;
      if (failure) throw failure;
      return secrets.get(...call);
    },
  };
  const pool = createDriverPool({
    runtimes: { get: (name) => runtimes.get(name) },
    secrets: readable,
    namespace: "system",
    makeDriver(host): RuntimeDriver {
      const driver = new Recorded(host);
      drivers.push(driver);
      return driver;
    },
    clock,
    log: silentLog,
  });
  show(...HOSTS);
  return {
    clock,
    drivers,
    runtimes,
    secrets,
    show,
    pool,
    failReads,
    driver: (host: string) => pool.driverFor("local", host, signal),
  };
}

test("one driver serves a host while nothing about it changes", async () => {
  const { clock, drivers, driver } = setup();
  const first = await driver("b");
  await clock.advance(120_000);
  assert.equal(await driver("b"), first);
  assert.equal(drivers.length, 1);
  assert.equal(drivers[0]?.made.tls?.cert, "first");
});

test("a rotated certificate makes a new driver; who holds the old one goes on, and it is closed patiently", async () => {
  const { clock, drivers, secrets, driver } = setup();
  await driver("b");
  secrets.put(secretOf("second"));
  await clock.advance(60_000);
  await driver("b");
  assert.deepEqual(
    drivers.map(({ made, closed }) => [made.tls?.cert, closed]),
    [
      ["first", "no"],
      ["second", "no"],
    ],
  );
  await clock.advance(RETIRED_MS);
  assert.deepEqual(
    drivers.map(({ closed }) => closed),
    ["patiently", "no"],
  );
});

test("drivers of hosts and Runtimes that are gone are closed", async () => {
  const { clock, drivers, runtimes, show, driver } = setup();
  await driver("a");
  await driver("b");
  show(...HOSTS.slice(0, 1));
  await driver("a");
  await clock.advance(RETIRED_MS);
  assert.deepEqual(
    drivers.map(({ closed }) => closed),
    ["no", "patiently"],
  );
  runtimes.clear();
  await assert.rejects(driver("a"), { code: "HostUnreachable" });
  await clock.advance(RETIRED_MS);
  assert.equal(drivers[0]?.closed, "patiently");
});

test("a host that comes back reads its Secret anew", async () => {
  const { drivers, secrets, show, driver } = setup();
  await driver("b");
  show(...HOSTS.slice(0, 1));
  await driver("a");
  secrets.put(secretOf("second"));
  show(...HOSTS);
  await driver("b");
  assert.equal(drivers.at(-1)?.made.tls?.cert, "second");
});

test("a Secret that cannot be read is that host's problem, by name", async () => {
  for (const failure of [
    new ApiError({ status: 403, reason: "Forbidden", message: "secrets is forbidden" }),
    new ApiError({ status: 500, reason: "InternalError", message: "the key service is down" }),
    new ConnectionError("GET /secrets: reset", { outcomeUnknown: false }),
  ]) {
    const { drivers, driver, failReads } = setup();
    failReads(failure);
    await assert.rejects(driver("b"), {
      code: "HostUnreachable",
      message: `Secret system/tls cannot be read: ${failure.message}`,
    });
    await driver("a");
    assert.equal(drivers.length, 1);
  }
});

test("the caller's own abort is no problem of the host", async () => {
  const { pool, failReads } = setup();
  const caller = new AbortController();
  failReads(new Error("aborted"));
  caller.abort(new Error("the pass was cut off"));
  await assert.rejects(pool.driverFor("local", "b", caller.signal), /the pass was cut off/);
});

test("while a Secret cannot be read, what it said last is used; one that is gone is not", async () => {
  const { clock, drivers, secrets, driver, failReads } = setup();
  await driver("b");
  clock.jump(60_000);
  const reads = failReads(new ApiError({ status: 500, reason: "InternalError", message: "the key service is down" }));
  await driver("b");
  await driver("b");
  assert.equal(drivers.length, 1, "the same driver goes on");
  assert.equal(reads(), 1, "a failing API server is not asked for every call");
  failReads(undefined);
  clock.jump(60_000);
  secrets.drop(SECRET);
  await assert.rejects(driver("b"), { code: "HostUnreachable", message: "Secret system/tls does not exist" });
});

test("closing the pool closes every driver at once, retired ones too, and makes no more", async () => {
  const { clock, drivers, secrets, pool, driver } = setup();
  await driver("b");
  secrets.put(secretOf("second"));
  await clock.advance(60_000);
  await driver("b");
  await pool.close();
  await setImmediate();
  assert.deepEqual(
    drivers.map(({ closed }) => closed),
    ["at once", "at once"],
  );
  await assert.rejects(driver("b"), { code: "HostUnreachable" });
});
