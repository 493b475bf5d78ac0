/** Captures that nobody goes on with leave the registry; one whose work is still somebody's stays. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { SandboxOperation, WorldRescue } from "@agentworlds/crds";
import { MEDIA_TYPES } from "../registry/contract.ts";
import { at, sandboxOf } from "../runtime/test-objects.test-kit.ts";
import { captureTag } from "../snapshot/docker-commit.ts";
import { worldParts } from "./world-parts.test-kit.ts";

const operation: SandboxOperation = {
  id: "publish-3",
  verb: "Close",
  reason: "CloseRequested",
  stage: "Uploaded",
  since: at(1),
  attempts: 0,
};
const compute = { runtime: "local", host: "a", id: "aw-sandbox-uid-1", boot: 1 };
const rescue: WorldRescue = {
  operation: "publish-3",
  sandbox: { name: "one", uid: "sandbox-uid" },
  runtime: "local",
  host: "a",
  computeId: "aw-sandbox-uid-1",
  reason: "SnapshotFailed",
  message: "",
  since: at(3),
  expiresAt: "2999-01-01T00:00:00Z",
};

/** The capture of `publish-3` is in the World's repository. */
async function pushed(options: Parameters<typeof worldParts>[0]) {
  const parts = worldParts({ compute: async () => "unknown", ...options });
  const bytes = new TextEncoder().encode(JSON.stringify({ mediaType: MEDIA_TYPES.ociManifest, captured: true }));
  const capture = await parts.registry.client.putManifest(
    "",
    { reference: captureTag("publish-3"), mediaType: MEDIA_TYPES.ociManifest, bytes },
    new AbortController().signal,
  );
  return { parts, isThere: () => parts.registry.manifests.has(capture) };
}

type Given = Parameters<typeof worldParts>[0];
const cases: [name: string, given: Given, stays: boolean][] = [
  ["its session works on it", { sandboxes: [{ status: { boot: 1, compute, operation } }] }, true],
  [
    "its session has yet to drop it",
    { sandboxes: [{ status: { boot: 1, compute, operation: { ...operation, id: "next", supersedes: "publish-3" } } }] },
    true,
  ],
  ["a rescue is of it", { world: { status: { rescues: [rescue] } } }, true],
  [
    "its session works on another",
    { sandboxes: [{ status: { boot: 1, compute, operation: { ...operation, id: "next" } } }] },
    false,
  ],
  ["nobody knows of it", {}, false],
];
for (const [name, given, stays] of cases) {
  test(`a capture in the registry ${stays ? "stays" : "goes"} when ${name}`, async () => {
    const { parts, isThere } = await pushed(given);
    await parts.pass();
    assert.equal(isThere(), stays);
  });
}

test("a capture whose operation becomes a rescue while it is looked for stays: it may be the only copy", async () => {
  const { parts, isThere } = await pushed({ sandboxes: [{ status: { boot: 1, compute, operation } }] });
  const { list } = parts.sandboxes;
  parts.sandboxes.list = (options) => {
    parts.change((world) => ({ ...world, status: { ...world.status, rescues: [rescue] } }));
    parts.sandboxes.put(sandboxOf({ status: { boot: 1 } }));
    parts.sandboxes.list = list;
    return list(options);
  };
  await parts.pass();
  assert.ok(isThere());
});
