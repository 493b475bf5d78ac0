/**
 * A session that was forced away, whose container is gone: what it had captured is the only copy of its work. It becomes a
 * rescue or a version before anything may remove it (DESIGN §4.2, §4.3).
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { MEDIA_TYPES } from "../registry/contract.ts";
import { digestOf } from "../registry/digest.ts";
import { labelsOf } from "../runtime/docker/labels.ts";
import { at, runtimeOf } from "../runtime/test-objects.test-kit.ts";
import { captureName, captureTag } from "../snapshot/docker-commit.ts";
import { publishedHistory } from "./published-history.test-kit.ts";
import { worldParts } from "./world-parts.test-kit.ts";

type Given = NonNullable<Parameters<typeof worldParts>[0]>;
type Parts = ReturnType<typeof worldParts>;

const { signal } = new AbortController();
const session = { name: "one", uid: "sandbox-uid" };
const holder = { sandbox: "one", uid: "sandbox-uid", causedBy: { user: "ada" }, acquiredAt: at(1) };
const history = publishedHistory([0, 1]);
const newest = history.at(-1)?.entry;
assert.ok(newest);
const pending = { operation: "publish-2", version: 2, sandbox: session, base: newest.digest, since: at(2) };
const bytesOf = (value: unknown) => new TextEncoder().encode(typeof value === "string" ? value : JSON.stringify(value));

function lost(given: Given & { readonly status?: object } = {}): Parts {
  return worldParts({ history, ...given, world: { status: { holder, ...given.status } } });
}

/** What an engine pushes of a container that was made from version `bootedFrom`. */
async function push(parts: Parts, operation: string, wish: { uid?: string; work?: string; bootedFrom?: number } = {}) {
  const { uid = "sandbox-uid", work = "work", bootedFrom = 1 } = wish;
  const booted = parts.versions[bootedFrom];
  const inherited = JSON.parse(new TextDecoder().decode(parts.registry.manifests.get(booted?.digest ?? ""))).layers;
  const own = bytesOf(work);
  parts.registry.blobs.set(digestOf(own), own);
  const layers = [...inherited, { mediaType: MEDIA_TYPES.ociLayerGzip, digest: digestOf(own), size: own.byteLength }];
  const owner = { installation: "install", namespace: "team", sandbox: "one", sandboxUid: uid, boot: 1 };
  const config = bytesOf({
    os: "linux",
    architecture: "amd64",
    created: at(work.length),
    config: { Labels: { ...labelsOf(owner), "agentworlds.dev/image": `registry/lab@${booted?.digest}` } },
    rootfs: { type: "layers", diff_ids: layers.map(({ digest }: { digest: string }) => digest) },
  });
  parts.registry.blobs.set(digestOf(config), config);
  const mediaType = MEDIA_TYPES.ociManifest;
  const described = { mediaType: MEDIA_TYPES.ociConfig, digest: digestOf(config), size: config.byteLength };
  const bytes = bytesOf({ schemaVersion: 2, mediaType, config: described, layers });
  await parts.registry.client.putManifest("", { reference: captureTag(operation), mediaType, bytes }, signal);
  return digestOf(own);
}

const layersOfHead = (parts: Parts): string[] =>
  JSON.parse(
    new TextDecoder().decode(parts.registry.manifests.get(parts.world()?.status.head?.digest ?? "")),
  ).layers.map(({ digest }: { digest: string }) => digest);

for (const [what, status] of [
  ["had reserved its version", { pending, nextVersion: 3 }],
  ["had reserved nothing yet", {}],
] as const)
  test(`what it had pushed becomes the next version before its hold ends: it ${what}`, async () => {
    const parts = lost({ status });
    const work = await push(parts, "publish-2");
    await parts.pass();
    const { head, versions, holder: held, pending: reserved } = parts.world()?.status ?? {};
    assert.equal(head?.version, 2);
    assert.ok(layersOfHead(parts).includes(work));
    const version = versions?.at(-1);
    assert.deepEqual(
      [version?.operation, version?.reason, version?.consistency, version?.recovered?.reason, version?.causedBy.user],
      ["publish-2", "Crash", "Crash", "Rescued", "ada"],
    );
    assert.deepEqual([held, reserved], [undefined, undefined]);
    assert.ok(
      parts.events.some(
        ({ reason, message }) =>
          reason === "HoldEnded" && /is version 2 .+ work since that capture is lost/.test(message),
      ),
    );
    assert.equal(parts.registry.tags.has(captureTag("publish-2")), false, "and only then its capture goes");
  });

test("a session that had published since its boot: its layers begin with those of the version it was booted from", async () => {
  const parts = lost();
  await push(parts, "publish-2", { bootedFrom: 0 });
  await parts.pass();
  assert.equal(parts.world()?.status.head?.version, 2);
});

test("of several captures the newest is the version", async () => {
  const parts = lost();
  await push(parts, "publish-2", { work: "old" });
  const work = await push(parts, "publish-3", { work: "newest work" });
  await parts.pass();
  assert.equal(parts.world()?.status.head?.version, 2);
  assert.ok(layersOfHead(parts).includes(work));
});

for (const [what, work, head] of [
  ["before its last version: that one stays head", "x", 1],
  ["after its last version: it becomes the next", "longer work", 2],
] as const)
  test(`where the registry deletes nothing, the session that is gone left a capture from ${what}`, async () => {
    // Version 1 is its own, of second 1; the capture is of as many seconds as its work is long.
    const parts = lost({ status: { holder: { ...holder, sandbox: "s1", uid: "s1-uid" } } });
    await push(parts, "given-up", { uid: "s1-uid", work });
    await parts.pass();
    assert.equal(parts.world()?.status.head?.version, head);
    assert.equal(parts.world()?.status.holder, undefined);
  });

test("a registry that cannot be asked keeps the hold and whatever is there, and a condition says so", async () => {
  const parts = lost({ status: { pending, nextVersion: 3 } });
  await push(parts, "publish-2");
  parts.registry.failing.set(captureTag("publish-2"), "Unavailable");
  await parts.pass();
  assert.equal(parts.world()?.status.holder?.uid, "sandbox-uid");
  assert.equal(parts.world()?.status.pending?.operation, "publish-2");
  assert.equal(parts.condition("HolderLost")?.reason, "CaptureNotPublished");
  assert.ok(parts.registry.tags.has(captureTag("publish-2")));
  parts.registry.failing.clear();
  await parts.pass();
  assert.equal(parts.world()?.status.head?.version, 2);
  assert.equal(parts.world()?.status.holder, undefined);
});

test("hosts that have not all answered keep the hold, and nothing that was pushed goes meanwhile", async () => {
  const parts = lost({ compute: async () => "unknown", status: { pending, nextVersion: 3 } });
  await push(parts, "publish-2");
  await push(parts, "publish-1", { work: "older" });
  await parts.pass();
  assert.equal(parts.condition("HolderLost")?.reason, "HostsNotAsked");
  assert.equal(parts.world()?.status.pending?.operation, "publish-2");
  assert.ok(parts.registry.tags.has(captureTag("publish-2")));
  assert.ok(parts.registry.tags.has(captureTag("publish-1")));
});

test("what another session had pushed is not this one's work", async () => {
  const parts = lost();
  await push(parts, "publish-2", { uid: "another" });
  await parts.pass();
  assert.equal(parts.world()?.status.head?.version, 1);
  assert.equal(parts.world()?.status.holder, undefined);
});

test("what is a version already is no work that is left", async () => {
  const parts = lost();
  await push(parts, "operation-1");
  await parts.pass();
  assert.equal(parts.world()?.status.head?.version, 1);
  assert.equal(parts.world()?.status.holder, undefined);
});

test("a capture on a host holds the World until its Runtime has put it aside; then it is a rescue of the World", async () => {
  const parts = lost({ compute: async () => "some" });
  await parts.pass();
  assert.equal(parts.condition("HolderLost")?.reason, "ComputeFound");
  parts.runtimes.push(
    runtimeOf({
      status: {
        rescues: [
          {
            operation: "publish-2",
            namespace: "team",
            sandbox: session,
            host: "a",
            computeId: "aw-sandbox-uid-1",
            capture: captureName("publish-2"),
            reason: "Orphaned",
            message: "",
            since: at(3),
            expiresAt: "2999-01-01T00:00:00Z",
          },
        ],
      },
    }),
  );
  await parts.pass();
  const { holder: held, rescues, head } = parts.world()?.status ?? {};
  assert.equal(held, undefined);
  assert.deepEqual(
    rescues?.map(({ operation, capture, base }) => [operation, capture, base]),
    [["publish-2", captureName("publish-2"), head?.digest]],
  );
});
