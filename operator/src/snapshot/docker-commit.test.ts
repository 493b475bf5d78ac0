/** Of a push that failed one hears the registry's own reason, if it takes nothing from us either. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { RegistryClient } from "../registry/contract.ts";
import { isRegistryError, RegistryError } from "../registry/errors.ts";
import { installationRegistry } from "../registry/installation.ts";
import { isRuntimeError } from "../runtime/errors.ts";
import { FakeDriver } from "../runtime/fake/driver.ts";
import { FakeHost } from "../runtime/fake/host.ts";
import { createDockerCommit } from "./docker-commit.ts";
import { MemoryRegistry } from "./memory-registry.test-kit.ts";

const { signal } = new AbortController();
const STORED = { digest: `sha256:${"0".repeat(64)}`, size: 1 } as const;

/** The error of an upload whose push fails: nothing of the operation was captured. */
async function failedUpload(uploadBlob: RegistryClient["uploadBlob"]): Promise<unknown> {
  const client = { ...new MemoryRegistry().client, uploadBlob };
  const mechanism = createDockerCommit(installationRegistry({ client, prefix: "worlds" }));
  const driver = new FakeDriver(new FakeHost(), "i");
  const owner = { installation: "i", namespace: "n", sandboxUid: "u" };
  const request = { operation: "o", driver, computeId: "c", owner, repository: "worlds/w" };
  return await mechanism.upload(request, signal).then(
    () => "uploaded",
    (error: unknown) => error,
  );
}

test("a registry without room is the reason", async () => {
  const error = await failedUpload(() => Promise.reject(new RegistryError("Unavailable", "no space left on device")));
  assert.ok(isRegistryError(error, "Unavailable"), String(error));
});

test("a registry that takes what we send leaves the engine's own words", async () => {
  assert.ok(isRuntimeError(await failedUpload(() => Promise.resolve(STORED)), "PushFailed"));
});
