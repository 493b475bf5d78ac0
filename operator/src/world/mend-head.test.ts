/** `status.head` was altered by hand: it names another digest than `status.versions` does. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { World } from "@agentworlds/crds";
import { publishedVersion } from "./published-history.test-kit.ts";
import { worldParts } from "./world-parts.test-kit.ts";

const zero = publishedVersion(0);
const one = publishedVersion(1, { parent: zero.entry.digest });
const two = publishedVersion(2, { parent: one.entry.digest });
const history = [zero, one, two];

const withHead = (digest: typeof one.entry.digest) => (world: World) => {
  assert.ok(world.status.head);
  return { ...world, status: { ...world.status, head: { ...world.status.head, digest } } };
};

test("head names an older version's digest: by the registry it is put right, and told", async () => {
  const parts = worldParts({ history });
  parts.change(withHead(one.entry.digest));
  await parts.pass();
  const { head, versions } = parts.world()?.status ?? {};
  assert.deepEqual([head?.version, head?.digest], [2, two.entry.digest]);
  assert.match(head?.image ?? "", new RegExp(`@${two.entry.digest}$`));
  assert.equal(versions?.at(-1)?.digest, two.entry.digest);
  assert.ok(parts.reasons().includes("HeadMended"));
});

test("the entry in versions is the altered one: it is put right", async () => {
  const parts = worldParts({ history });
  parts.change((world) => ({
    ...world,
    status: {
      ...world.status,
      versions: (world.status.versions ?? []).map((entry) =>
        entry.version === 2 ? { ...entry, digest: zero.entry.digest } : entry,
      ),
    },
  }));
  await parts.pass();
  const { head, versions } = parts.world()?.status ?? {};
  assert.deepEqual([head?.digest, versions?.at(-1)?.digest], [two.entry.digest, two.entry.digest]);
});

test("the registry confirms neither: the World says so, and nothing is written into either", async () => {
  const parts = worldParts({ history });
  parts.registry.manifests.delete(two.entry.digest);
  parts.change(withHead(one.entry.digest));
  await parts.pass();
  assert.equal(parts.condition("Ready")?.reason, "HeadContradicted");
  assert.equal(parts.world()?.status.head?.digest, one.entry.digest);
});

test("a registry that does not answer changes nothing", async () => {
  const parts = worldParts({ history });
  parts.registry.failing.set(two.entry.digest, "Unavailable");
  parts.change(withHead(one.entry.digest));
  await parts.pass();
  assert.equal(parts.world()?.status.head?.digest, one.entry.digest);
});
