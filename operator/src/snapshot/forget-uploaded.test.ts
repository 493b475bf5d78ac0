/** A capture's tag can be made to name anything; dropping it never takes a version along (DESIGN §4.1). */
import assert from "node:assert/strict";
import { test } from "node:test";
import { MEDIA_TYPES } from "../registry/contract.ts";
import { installationRegistry } from "../registry/installation.ts";
import { captureTag, createDockerCommit } from "./docker-commit.ts";
import { MemoryRegistry } from "./memory-registry.test-kit.ts";

const { signal } = new AbortController();
const OPERATION = "publish-1";

async function dropped(manifest: object, isVersion: boolean) {
  const registry = new MemoryRegistry();
  const bytes = new TextEncoder().encode(JSON.stringify({ mediaType: MEDIA_TYPES.ociManifest, ...manifest }));
  const put = { mediaType: MEDIA_TYPES.ociManifest, bytes };
  const digest = await registry.client.putManifest("lab", { reference: captureTag(OPERATION), ...put }, signal);
  const snapshots = createDockerCommit(installationRegistry({ client: registry.client, prefix: "worlds" }));
  const end = await snapshots.forgetUploaded(
    { operation: OPERATION, repository: "lab", isVersion: async () => isVersion },
    signal,
  );
  return { end, isThere: registry.manifests.has(digest) };
}

test("what an engine pushed goes", async () => {
  assert.deepEqual(await dropped({ layers: [] }, false), { end: "Dropped", isThere: false });
});

test("a manifest that the World names as a version stays, whatever tag it has", async () => {
  assert.deepEqual(await dropped({ layers: [] }, true), { end: "IsVersion", isThere: true });
});

test("a manifest that says that it is a World's stays, although no World lists it any more", async () => {
  const annotations = { "dev.agentworlds.world-uid": "world-uid", "dev.agentworlds.version": "1" };
  assert.deepEqual(await dropped({ annotations }, false), { end: "IsVersion", isThere: true });
});

test("nothing left is a success", async () => {
  const registry = new MemoryRegistry();
  const snapshots = createDockerCommit(installationRegistry({ client: registry.client, prefix: "worlds" }));
  const pushed = { operation: OPERATION, repository: "lab", isVersion: () => assert.fail("nobody need be asked") };
  assert.equal(await snapshots.forgetUploaded(pushed, signal), "Nothing");
});
