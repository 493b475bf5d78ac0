import { rm, statfs } from "node:fs/promises";
import { join } from "node:path";
import { attempt, run } from "../../../hack/parts/process.ts";
import type { FaultKind } from "../draw/faults.ts";
import type { FaultAct } from "../faults.ts";
import { holdRules, lengthOf, pause } from "./hold.ts";

const REGISTRY = /^\/v2\/.+/;
const MANIFESTS = /^\/v2\/.+\/manifests\//;
const failing = (status: number, code: string) =>
  ({ kind: "respond", status, body: JSON.stringify({ errors: [{ code, message: "chaos" }] }) }) as const;

/** How long a manifest may take to come by, so that the garbage collection falls between its blobs and itself. */
const MANIFEST_WITHIN_MS = 10_000;

export const REGISTRY_FAULTS = {
  async registryFails({ ground }, fault) {
    const status = fault.choice < 0.5 ? 503 : 500;
    const rules = [{ path: REGISTRY, fault: failing(status, "UNAVAILABLE") }];
    return holdRules(ground.registryProxy, rules, lengthOf(fault, 1_000, 4_000));
  },

  async registrySlow({ ground }, fault) {
    const milliseconds = lengthOf(fault, 500, 2_500);
    const rule = { path: REGISTRY, fault: { kind: "latency", milliseconds } } as const;
    return holdRules(ground.registryProxy, [rule], 3_000);
  },

  async registryResets({ ground }, fault) {
    const rule = { path: REGISTRY, fault: { kind: "reset", at: "request" } } as const;
    return holdRules(ground.registryProxy, [rule], lengthOf(fault, 1_000, 3_000));
  },

  async registryAnswersLost({ ground }, fault) {
    const rules = ["POST", "PATCH", "PUT"].map(
      (method) => ({ method, path: REGISTRY, fault: { kind: "reset", at: "answer" } }) as const,
    );
    return holdRules(ground.registryProxy, rules, lengthOf(fault, 1_000, 3_000));
  },

  /** What is read ends too early: inside a blob, inside a manifest. */
  async registryShortRead({ ground }, fault) {
    const afterBytes = Math.floor(fault.choice * 400);
    const rule = { method: "GET", path: REGISTRY, fault: { kind: "reset", afterBytes } } as const;
    return holdRules(ground.registryProxy, [rule], lengthOf(fault, 2_000, 4_000));
  },

  /** HEAD says that everything is there. */
  async registryLyingHead({ ground }, fault) {
    const lie = {
      kind: "respond",
      status: 200,
      headers: { "content-length": "7", "docker-content-digest": "" },
    } as const;
    return holdRules(
      ground.registryProxy,
      [{ method: "HEAD", path: REGISTRY, fault: lie }],
      lengthOf(fault, 2_000, 5_000),
    );
  },

  async registryDiskFull({ ground }, fault) {
    const ballast = join(ground.registry.dataDirectory, "ballast");
    try {
      const isFull = await fillUp(ballast, ground.registry.dataDirectory);
      await pause(lengthOf(fault, 2_000, 4_000));
      return { cameTrue: isFull, detail: "not a byte is left" };
    } finally {
      await rm(ballast, { force: true });
    }
  },

  async registryRestart({ ground }) {
    await ground.registry.kill();
    await ground.registry.start();
    return { cameTrue: true, detail: "SIGKILL" };
  },

  /** The blobs are there, their manifest is held back until the garbage collection is over. */
  async registryGarbage({ ground }) {
    const { registryProxy, registry } = ground;
    const held = registryProxy.add({
      method: "PUT",
      path: MANIFESTS,
      times: 1,
      fault: { kind: "latency", milliseconds: 300 },
    });
    try {
      for (let waited = 0; held.hits === 0 && waited < MANIFEST_WITHIN_MS; waited += 20) await pause(20);
      if (held.hits === 0) return { cameTrue: false, detail: "no manifest came by" };
      // Nobody may write during a collection, or it takes what was accepted a moment ago: that is the registry's own rule.
      registryProxy.partition();
      await pause(250);
      await removeEmptyLinks(registry.dataDirectory);
      await registry.collectGarbage();
    } finally {
      held.remove();
      registryProxy.heal();
    }
    return { cameTrue: true, detail: "between blobs and manifest" };
  },
} satisfies Partial<Record<FaultKind, FaultAct>>;

/** Takes what is free; says whether nothing is left. */
async function fillUp(path: string, dataDirectory: string): Promise<boolean> {
  const signal = AbortSignal.timeout(60_000);
  const { bavail, bsize } = await statfs(dataDirectory);
  // Most of it at once, without a byte being written; the rest until the disk itself says no.
  await attempt(["fallocate", "--length", String(Math.floor(bavail * bsize * 0.97)), path], { signal });
  const rest = ["dd", "if=/dev/zero", `of=${path}`, "bs=64K", "oflag=append", "conv=notrunc"];
  return (await attempt(rest, { signal })).stderr.includes("No space left on device");
}

/**
 * A write for which there was no room leaves an empty link behind, over which the registry's collection gives up: it goes, as
 * whoever runs the registry would have it go.
 */
async function removeEmptyLinks(dataDirectory: string): Promise<void> {
  const command = ["find", dataDirectory, "-name", "link", "-size", "0", "-delete"];
  await run(command, { signal: AbortSignal.timeout(30_000) });
}
