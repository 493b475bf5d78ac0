import assert from "node:assert/strict";
import { test } from "node:test";
import { worldIntent } from "../process/mirror.ts";
import { Terminal, Waiting } from "../reconciler/policy.ts";
import { worldRepository } from "../registry/installation.ts";
import { runtimeOf } from "../runtime/test-objects.test-kit.ts";
import { publishedHistory, putHistory } from "./published-history.test-kit.ts";
import { worldParts } from "./world-parts.test-kit.ts";

type Parts = ReturnType<typeof worldParts>;

const runtime = runtimeOf({ spec: { selection: "Default" }, status: { platform: "linux/amd64" } });
const repositoryOf = (world: string, uid: string, namespace = "team", installation = "install") =>
  worldRepository("worlds", { installation, namespace, world, uid });
const OLD = repositoryOf("lab", "0a1b2c3d-old");

/** A World that has just been made, with what an earlier one of its name left in the registry. */
function made(annotations: Record<string, string> = {}, left: readonly string[] = [OLD]): Parts {
  const parts = worldParts({
    history: [],
    runtimes: [runtime],
    image: "Offered",
    world: { metadata: { annotations } },
  });
  parts.change((world) => ({ ...world, status: { observedGeneration: -1 } }));
  for (const repository of left) {
    putHistory(parts.registries.repository(repository), publishedHistory([0, 1, 2], { uid: "0a1b2c3d-old" }));
  }
  return parts;
}

const isGenesis = (parts: Parts): boolean => parts.world()?.status.head?.version === 0;

test("a World does not start anew behind the back of an earlier one of its name: it stalls and names both ways", async () => {
  const parts = made();
  const end = await parts.pass();
  assert.ok(end instanceof Terminal);
  assert.equal(end.reason, "PreviousLineageFound");
  assert.equal(parts.world()?.status.head, undefined);
  const stalled = parts.condition("Stalled");
  assert.equal(stalled?.reason, "PreviousLineageFound");
  assert.ok(stalled.message.includes(`spec.from.repository.name: 127.0.0.1:5055/${OLD}`), stalled.message);
  assert.ok(stalled.message.includes("agentworlds.dev/ignore-lineages=lab-0a1b2c3d"), stalled.message);
  assert.deepEqual(parts.registries.writes, []);
});

for (const value of ["lab-0a1b2c3d", `127.0.0.1:5055/${OLD}`, " lab-ffffffff , lab-0a1b2c3d "]) {
  test(`annotated with ${value} it starts anew beside the earlier one, which stays as it is`, async () => {
    const parts = made({ "agentworlds.dev/ignore-lineages": value });
    await parts.pass();
    assert.ok(isGenesis(parts));
    assert.equal(parts.registries.repository(OLD).manifests.size, 3);
    assert.ok(parts.registries.writes.every((write) => !write.startsWith(OLD)));
  });
}

test("the annotation names lineages one by one: a later one is found again", async () => {
  const parts = made({ "agentworlds.dev/ignore-lineages": "lab-0a1b2c3d" }, [OLD, repositoryOf("lab", "99999999")]);
  const end = await parts.pass();
  assert.ok(end instanceof Terminal);
  assert.match(end.message, /lab-99999999 \(newest version 2\)/);
  assert.doesNotMatch(end.message, /lab-0a1b2c3d/);
});

test("a World that stalls is looked at again when it is annotated", async () => {
  const parts = made();
  const before = worldIntent(parts.world());
  parts.change((world) => ({
    ...world,
    metadata: { ...world.metadata, annotations: { "agentworlds.dev/ignore-lineages": "lab-0a1b2c3d" } },
  }));
  assert.notEqual(worldIntent(parts.world()), before);
  parts.change((world) => ({ ...world, metadata: { ...world.metadata, annotations: { other: "x" } } }));
  assert.equal(worldIntent(parts.world()), before);
});

const strangers: [name: string, repository: string][] = [
  ["a World of another name that begins alike", repositoryOf("lab-two", "0a1b2c3d")],
  ["a World whose name ends like a UID", repositoryOf("lab-12345678", "0a1b2c3d")],
  ["a World of another namespace", repositoryOf("lab", "0a1b2c3d", "other")],
  ["another installation", repositoryOf("lab", "0a1b2c3d", "team", "another")],
];
for (const [name, repository] of strangers) {
  test(`${name} is no earlier World of this name`, async () => {
    const parts = made({}, [repository]);
    await parts.pass();
    assert.ok(isGenesis(parts));
  });
}

test("an emptied repository is no lineage: deletionPolicy Delete leaves its name in the catalog", async () => {
  const parts = made({}, []);
  parts.registries.repository(OLD).tags.set("capture-1", publishedHistory([0])[0]?.digest ?? "sha256:");
  await parts.pass();
  assert.ok(isGenesis(parts));
});

for (const answer of ["NoCatalog", "Unauthorized"] as const) {
  test(`a registry that shows no catalog (${answer}): the World starts, and it is said that nobody could look`, async () => {
    const parts = made();
    parts.registries.catalog = answer;
    await parts.pass();
    assert.ok(isGenesis(parts));
    assert.ok(parts.reasons().includes("LineagesNotListed"));
  });
}

test("a catalog that cannot be read now is waited for: it is not taken for an empty one", async () => {
  const parts = made();
  parts.registries.catalog = "Unavailable";
  const end = await parts.pass();
  assert.ok(end instanceof Waiting);
  assert.equal(end.reason, "RegistryUnavailable");
  assert.equal(parts.world()?.status.head, undefined);
  parts.registries.catalog = "Shown";
  assert.ok((await parts.pass()) instanceof Terminal);
});

test("tags of a found repository that cannot be read are waited for", async () => {
  const parts = made();
  parts.registries.repository(OLD).failing.set("tags", "Unavailable");
  assert.ok((await parts.pass()) instanceof Waiting);
  assert.equal(parts.world()?.status.head, undefined);
});
