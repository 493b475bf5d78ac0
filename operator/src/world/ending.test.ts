import assert from "node:assert/strict";
import { test } from "node:test";
import { Waiting } from "../reconciler/policy.ts";
import { at } from "../runtime/test-objects.test-kit.ts";
import { publishedVersion } from "./published-history.test-kit.ts";
import { deleting, worldParts } from "./world-parts.test-kit.ts";

const deleted = { metadata: deleting, spec: { deletionPolicy: "Delete" } } as const;
const holder = { sandbox: "one", uid: "sandbox-uid", causedBy: { user: "ada" }, acquiredAt: at(1) };

test("a deletion takes every manifest along: listed, pruned and not deleted yet, and captures left behind", async () => {
  const parts = worldParts({ world: deleted });
  const [oldest] = parts.versions;
  assert.ok(oldest);
  const { version, digest: prunedDigest } = oldest;
  const pruned = { version, digest: prunedDigest, prunedAt: at(1), reason: "BeyondKeepVersions" };
  parts.change((world) => ({
    ...world,
    status: { ...world.status, versions: parts.versions.slice(1), prunedVersions: [pruned] },
  }));
  await parts.registry.client.putManifest(
    "",
    { reference: "capture-publish-9", mediaType: "", bytes: new TextEncoder().encode("{}") },
    new AbortController().signal,
  );
  await parts.pass();
  assert.equal(parts.world(), undefined, "the World is gone");
  assert.deepEqual([...parts.registry.manifests.keys()], []);
  assert.deepEqual(parts.reasons(), []);
});

test("a deletion takes the versions along that status does not list any more, and leaves what is somebody else's", async () => {
  const history = [0, 1, 2].map((number) => publishedVersion(number));
  const parts = worldParts({ world: deleted, history });
  const foreign = await parts.registry.client.putManifest(
    "",
    { reference: "v7", mediaType: "", bytes: new TextEncoder().encode("{}") },
    new AbortController().signal,
  );
  parts.change((world) => ({ ...world, status: { ...world.status, versions: parts.versions.slice(2) } }));
  await parts.pass();
  assert.equal(parts.world(), undefined);
  assert.deepEqual([...parts.registry.manifests.keys()], [foreign]);
});

test("a registry that is down is waited for by name, and the deletion ends at its deadline with the repository named", async () => {
  const parts = worldParts({ world: deleted, deletionDeadlineMs: 60_000 });
  parts.registry.failing.set("tags", "Unavailable");
  const waited = await parts.pass();
  assert.ok(waited instanceof Waiting);
  assert.equal(waited.reason, "RegistryUnavailable");
  assert.equal(parts.condition("Reconciling")?.reason, "RegistryUnavailable");
  assert.match(
    parts.condition("Reconciling")?.message ?? "",
    /worlds\/install\/team\/lab-world-ui are not deleted yet/,
  );
  assert.deepEqual(parts.reasons(), ["RegistryUnavailable"]);

  const writes = parts.worlds.writes.length;
  await parts.pass();
  assert.equal(parts.worlds.writes.length, writes, "the same trouble is not written again");

  await parts.clock.advance(59_000);
  const last = await parts.pass();
  assert.ok(last instanceof Waiting && last.afterMs === 1_000, "the next look is at the deadline");
  await parts.clock.advance(1_000);
  await parts.pass();
  assert.equal(parts.world(), undefined);
  const kept = parts.events.at(-1);
  assert.equal(kept?.reason, "ContentKept");
  assert.match(kept?.message ?? "", /127\.0\.0\.1:5055\/worlds\/install\/team\/lab-world-ui still holds its versions/);
});

test("a registry that refuses deletions is bounded the same way", async () => {
  const parts = worldParts({ world: deleted, deletionDeadlineMs: 60_000 });
  parts.registry.failing.set(`delete ${parts.head.digest}`, "Refused");
  const waited = await parts.pass();
  assert.ok(waited instanceof Waiting && waited.reason === "RegistryRefused");
  await parts.clock.advance(60_000);
  await parts.pass();
  assert.equal(parts.world(), undefined);
  assert.equal(parts.events.at(-1)?.reason, "ContentKept");
});

test("a registry that moved stalls no deletion: it is waited for, and then the content is kept", async () => {
  const repository = "registry.example/worlds/install/team/lab-world-ui";
  const parts = worldParts({ world: deleted, deletionDeadlineMs: 60_000 });
  parts.change((world) => ({ ...world, status: { ...world.status, repository } }));
  const waited = await parts.pass();
  assert.ok(waited instanceof Waiting && waited.reason === "RegistryMoved", "no Terminal: nobody can change the spec");
  await parts.clock.advance(60_000);
  await parts.pass();
  assert.equal(parts.world(), undefined);
  assert.match(parts.events.at(-1)?.message ?? "", /registry\.example\/worlds.* still holds/);
});

test("a holder that lives is waited for by name: it is the session that lets go once the deletion is overdue", async () => {
  const parts = worldParts({
    world: { ...deleted, status: { holder } },
    sandboxes: [{ metadata: { uid: "sandbox-uid" } }],
    deletionDeadlineMs: 60_000,
  });
  await parts.clock.advance(90_000);
  const waited = await parts.pass();
  assert.ok(waited instanceof Waiting && waited.reason === "HolderEnding");
  assert.match(parts.condition("Reconciling")?.message ?? "", /waits for Sandbox one/);
  assert.deepEqual(parts.reasons(), ["HolderEnding"]);
  assert.equal(parts.registry.manifests.size, 3, "nothing was deleted under it");
});

test("a deletion with Retain asks no registry and leaves the versions", async () => {
  const parts = worldParts({ world: { metadata: deleting, spec: { deletionPolicy: "Retain" } } });
  parts.registry.failing.set("tags", "Unavailable");
  await parts.pass();
  assert.equal(parts.world(), undefined);
  assert.equal(parts.registry.manifests.size, 3);
});

test("a World that others keep is left alone once our finalizer is gone", async () => {
  const parts = worldParts({
    world: { metadata: { ...deleting, finalizers: ["example.com/keep"] }, spec: { deletionPolicy: "Delete" } },
  });
  const writes = parts.worlds.writes.length;
  assert.deepEqual(await parts.pass(), {});
  assert.equal(parts.worlds.writes.length, writes);
});
