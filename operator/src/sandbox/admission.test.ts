import assert from "node:assert/strict";
import { test } from "node:test";
import type { Runtime, Sandbox } from "@agentworlds/crds";
import fc from "fast-check";
import { settle } from "../reconciler/test-clock.test-kit.ts";
import type { Capability } from "../runtime/contract.ts";
import { runtimeOf, sandboxOf } from "../runtime/test-objects.test-kit.ts";
import { AdmissionDesk, checkRuntime, type SessionNeeds, sessionsByHost } from "./admission.ts";

const { signal } = new AbortController();

const everything: Capability[] = [
  "exec",
  "freeze",
  "commit",
  "cpuLimit",
  "memoryLimit",
  "pidsLimit",
  "isolatedNetwork",
  "ociRuntime",
];
const without = (...lacking: Capability[]) => everything.filter((capability) => !lacking.includes(capability));
const able = (capabilities: readonly Capability[], spec: Parameters<typeof runtimeOf>[0] = {}): Runtime =>
  runtimeOf({ ...spec, status: { platform: "linux/amd64", capabilities: [...capabilities] } });
/** Its hosts can do everything, and know these OCI runtimes. */
const knowing = (ociRuntimes: string[], ociRuntime: string): Runtime =>
  runtimeOf({
    spec: { isolation: { network: "Isolated", pidsLimit: 512, memory: "2Gi", ociRuntime } },
    status: { platform: "linux/amd64", capabilities: everything, ociRuntimes },
  });

const needs: SessionNeeds = { saves: true, platform: "linux/amd64", cpu: false, memory: false };

const checks: [
  name: string,
  runtime: Runtime,
  needs: SessionNeeds,
  want: { kind: string; reason?: string; names?: string },
][] = [
  ["a Runtime that can do everything fits", able(everything), needs, { kind: "fits" }],
  [
    "a cordon heals: wait",
    able(everything, { spec: { scheduling: "Cordoned" } }),
    needs,
    { kind: "waits", reason: "RuntimeCordoned" },
  ],
  ["hosts that never answered heal: wait", runtimeOf(), needs, { kind: "waits", reason: "RuntimeNotReady" }],
  [
    "another platform is refused and both are named",
    able(everything),
    { ...needs, platform: "linux/arm64" },
    { kind: "refused", reason: "PlatformMismatch", names: "linux/arm64, Runtime local is linux/amd64" },
  ],
  [
    "a throwaway image takes the Runtime's platform",
    able(everything),
    { ...needs, platform: undefined },
    { kind: "fits" },
  ],
  [
    "a session that saves needs commit, and every missing capability is named",
    able(without("commit", "pidsLimit")),
    needs,
    { kind: "refused", reason: "CapabilityMissing", names: "commit, pidsLimit" },
  ],
  [
    "a host that cannot freeze is no obstacle: its sessions are stopped before they are captured",
    able(without("freeze")),
    needs,
    { kind: "fits" },
  ],
  ["a throwaway session does not", able(without("freeze", "commit")), { ...needs, saves: false }, { kind: "fits" }],
  [
    "a wish for CPU needs the limit",
    able(without("cpuLimit")),
    { ...needs, cpu: true },
    { kind: "refused", reason: "CapabilityMissing", names: "cpuLimit" },
  ],
  ["no wish for CPU does not", able(without("cpuLimit")), needs, { kind: "fits" }],
  [
    "the Runtime's own CPU limit counts as a wish",
    able(without("cpuLimit"), {
      spec: { isolation: { network: "Isolated", pidsLimit: 512, memory: "2Gi", cpu: "1" } },
    }),
    needs,
    { kind: "refused", reason: "CapabilityMissing", names: "cpuLimit" },
  ],
  [
    "memory is limited by default",
    able(without("memoryLimit")),
    needs,
    { kind: "refused", reason: "CapabilityMissing", names: "memoryLimit" },
  ],
  [
    "processes are always limited",
    able(without("pidsLimit")),
    needs,
    { kind: "refused", reason: "CapabilityMissing", names: "pidsLimit" },
  ],
  [
    "no network needs no isolated one",
    able(without("isolatedNetwork"), { spec: { isolation: { network: "None", pidsLimit: 512, memory: "2Gi" } } }),
    needs,
    { kind: "fits" },
  ],
  [
    "an OCI runtime is never replaced by the default",
    able(without("ociRuntime"), {
      spec: { isolation: { network: "Isolated", pidsLimit: 512, memory: "2Gi", ociRuntime: "runsc" } },
    }),
    needs,
    { kind: "refused", reason: "CapabilityMissing", names: "ociRuntime" },
  ],
  [
    "an OCI runtime that the hosts do not know is named, although they know another one",
    knowing(["kata", "runc"], "runsc"),
    needs,
    { kind: "refused", reason: "CapabilityMissing", names: "lacks ociRuntime runsc (its hosts know kata, runc)" },
  ],
  ["an OCI runtime that every host knows fits", knowing(["runc", "runsc"], "runsc"), needs, { kind: "fits" }],
  ["the default may be named", knowing(["runc"], "runc"), needs, { kind: "fits" }],
  [
    "a host without a known capability list is refused, not believed",
    runtimeOf({ status: { platform: "linux/amd64" } }),
    needs,
    { kind: "refused", reason: "CapabilityMissing", names: "exec" },
  ],
];
for (const [name, runtime, wanted, { kind, reason, names }] of checks) {
  test(name, () => {
    const verdict = checkRuntime(runtime, wanted);
    assert.equal(verdict.kind, kind);
    if (verdict.kind === "fits") return;
    assert.equal(verdict.reason, reason);
    assert.ok(verdict.remediation.length > 0, "says what to do");
    if (names !== undefined) assert.ok(verdict.message.includes(names), verdict.message);
  });
}

const session = (uid: string, host: string | undefined, boot = 1, runtime = "local"): Sandbox =>
  sandboxOf({
    metadata: { name: uid, uid },
    status: { boot, ...(host === undefined ? {} : { compute: { runtime, host, id: `aw-${uid}-${boot}`, boot } }) },
  });

test("sessions count where their compute is recorded, on their own Runtime only", () => {
  const sandboxes = [
    session("u1", "a"),
    session("u2", "a"),
    session("u3", "b"),
    session("u4", undefined),
    session("u5", "a", 1, "other"),
  ];
  assert.deepEqual(
    sessionsByHost(sandboxes, "local"),
    new Map([
      ["a", 2],
      ["b", 1],
    ]),
  );
});

test("a slot given out counts before the cache shows the boot, and once afterwards", () => {
  const desk = new AdmissionDesk();
  desk.give("u1", { runtime: "local", host: "a", boot: 1 });
  assert.deepEqual(desk.occupancy([session("u1", undefined, 0)], "local"), new Map([["a", 1]]));
  assert.deepEqual(desk.occupancy([session("u1", "a", 1)], "local"), new Map([["a", 1]]));
  // The boot ended again: what was given is not remembered any more.
  assert.deepEqual(desk.occupancy([session("u1", undefined, 1)], "local"), new Map());
});

test("a cache that still shows the boot before the last does not free the slot", () => {
  const desk = new AdmissionDesk();
  desk.give("u1", { runtime: "local", host: "a", boot: 2 });
  assert.deepEqual(desk.occupancy([session("u1", undefined, 1)], "local"), new Map([["a", 1]]));
});

test("a slot of one Runtime does not count on another", () => {
  const desk = new AdmissionDesk();
  desk.give("u1", { runtime: "other", host: "a", boot: 1 });
  assert.deepEqual(desk.occupancy([session("u1", undefined, 0)], "local"), new Map());
});

test("a slot taken back is free at once", () => {
  const desk = new AdmissionDesk();
  desk.give("u1", { runtime: "local", host: "a", boot: 1 });
  desk.takeBack("u1");
  assert.deepEqual(desk.occupancy([session("u1", undefined, 0)], "local"), new Map());
});

test("a slot given to a Sandbox that was deleted meanwhile is free", () => {
  const desk = new AdmissionDesk();
  desk.give("u1", { runtime: "local", host: "a", boot: 1 });
  assert.deepEqual(desk.occupancy([], "local"), new Map());
});

test("an admission begins only when the one before has ended, also when that failed", async () => {
  const desk = new AdmissionDesk();
  const first = Promise.withResolvers<void>();
  const log: string[] = [];
  const one = desk.inTurn(async () => {
    log.push("first begins");
    await first.promise;
    log.push("first fails");
    throw new Error("refused");
  }, signal);
  const two = desk.inTurn(async () => {
    log.push("second begins");
    return "admitted";
  }, signal);
  await settle();
  assert.deepEqual(log, ["first begins"]);
  first.resolve();
  await assert.rejects(one, /refused/);
  assert.equal(await two, "admitted");
  assert.deepEqual(log, ["first begins", "first fails", "second begins"]);
});

test("an admission that waits for its turn ends with its signal, and nobody overtakes the one before", async () => {
  const desk = new AdmissionDesk();
  const first = Promise.withResolvers<string>();
  const one = desk.inTurn(() => first.promise, signal);
  const impatient = new AbortController();
  const two = desk.inTurn(async () => assert.fail("it began although it had given up"), impatient.signal);
  const log: string[] = [];
  const three = desk.inTurn(async () => void log.push("third"), signal);
  impatient.abort(new Error("the lease is over"));
  await assert.rejects(two, /the lease is over/);
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(log, []);
  first.resolve("one");
  assert.equal(await one, "one");
  await three;
  assert.deepEqual(log, ["third"]);
});

test("however admissions interleave with failures and a slow cache, slots are never given out twice", async () => {
  const attempt = fc.record({ fails: fc.boolean(), pause: fc.nat(2), cacheLags: fc.boolean() });
  await fc.assert(
    fc.asyncProperty(
      fc.array(attempt, { minLength: 1, maxLength: 12 }),
      fc.integer({ min: 1, max: 4 }),
      async (attempts, total) => {
        const desk = new AdmissionDesk();
        const cache = attempts.map((_, index) => session(`u${index}`, undefined, 0));
        const admitted = new Set<string>();
        const admit = async (index: number, { fails, pause, cacheLags }: (typeof attempts)[number]) => {
          const uid = `u${index}`;
          const used = [...desk.occupancy(cache, "local").values()].reduce((sum, count) => sum + count, 0);
          if (used >= total) return;
          desk.give(uid, { runtime: "local", host: "a", boot: 1 });
          for (let turn = 0; turn < pause; turn++) await Promise.resolve();
          if (fails) {
            desk.takeBack(uid);
            return;
          }
          admitted.add(uid);
          if (!cacheLags) cache[index] = session(uid, "a", 1);
        };
        await Promise.all(attempts.map((one, index) => desk.inTurn(() => admit(index, one), signal)));
        const wanting = attempts.filter(({ fails }) => !fails).length;
        assert.equal(admitted.size, Math.min(total, wanting), "every slot is used, none twice");
      },
    ),
  );
});
