import assert from "node:assert/strict";
import { test } from "node:test";
import type { SandboxStatus } from "@agentworlds/crds";
import { worldIntent } from "../process/mirror.ts";
import { Terminal, Waiting } from "../reconciler/policy.ts";
import { worldRepository } from "../registry/installation.ts";
import { at, digest, runtimeOf } from "../runtime/test-objects.test-kit.ts";
import { publishedHistory, putHistory } from "./published-history.test-kit.ts";
import { worldParts } from "./world-parts.test-kit.ts";

type Parts = ReturnType<typeof worldParts>;

const runtime = runtimeOf({ spec: { selection: "Default" }, status: { platform: "linux/amd64" } });
const repositoryOf = (world: string, uid: string, namespace = "team", installation = "install") =>
  worldRepository("worlds", { installation, namespace, world, uid });
const OLD = repositoryOf("lab", "0a1b2c3d-old");
const INDEX = "worlds/install/team/lab/lineages";

interface Beside extends Pick<NonNullable<Parameters<typeof worldParts>[0]>, "sandboxes" | "runtimes"> {
  /** Versions of the earlier World. */
  readonly numbers?: readonly number[];
}

/** A Sandbox of the earlier World. */
const ofOld = (status: Partial<SandboxStatus>) => ({ status: { world: { uid: "0a1b2c3d-old" }, ...status } });

const rescueOfOld = {
  operation: "op",
  namespace: "team",
  world: "lab",
  worldUid: "0a1b2c3d-old",
  sandbox: { name: "one", uid: "sandbox-uid" },
  host: "a",
  computeId: "aw-one-1",
  reason: "SnapshotFailed",
  message: "kept",
  since: at(0),
  until: at(9),
} as const;

/** A World that has just been made, with what an earlier one of its name left in the registry. */
function made(
  annotations: Record<string, string> = {},
  left: readonly string[] = [OLD],
  { numbers = [0, 1, 2], runtimes = [runtime], ...others }: Beside = {},
): Parts {
  const parts = worldParts({
    history: [],
    runtimes,
    image: "Offered",
    world: { metadata: { annotations } },
    ...others,
  });
  parts.change((world) => ({ ...world, status: { observedGeneration: -1 } }));
  for (const repository of left) {
    putHistory(parts.registries.repository(repository), publishedHistory(numbers, { uid: "0a1b2c3d-old" }));
  }
  return parts;
}

/** As the operator of the earlier Worlds did it. */
function enter(parts: Parts, ...repositories: readonly string[]): void {
  for (const repository of repositories) parts.registries.repository(INDEX).tags.set(repository.slice(-8), "sha256:");
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

test("the annotation names lineages one by one: a later one is found again, and one command names both", async () => {
  const parts = made({ "agentworlds.dev/ignore-lineages": "lab-0a1b2c3d" }, [OLD, repositoryOf("lab", "99999999")]);
  const end = await parts.pass();
  assert.ok(end instanceof Terminal);
  assert.match(end.message, /lab-99999999 \(newest version 2\)/);
  assert.doesNotMatch(end.message, /lab-0a1b2c3d/);
  const command =
    "kubectl annotate world lab -n team --overwrite agentworlds.dev/ignore-lineages=lab-0a1b2c3d,lab-99999999";
  assert.ok(end.remediation?.includes(`\`${command}\``), end.remediation);
});

test("what the message says, done as it is said, ends the stall, however many there are", async () => {
  const left = [OLD, repositoryOf("lab", "99999999"), repositoryOf("lab", "88888888")];
  const told = await made({ "agentworlds.dev/ignore-lineages": ` 127.0.0.1:5055/${OLD} , lab-gone0000 ` }, left).pass();
  assert.ok(told instanceof Terminal);
  const value = /agentworlds\.dev\/ignore-lineages=([^`]*)`/.exec(told.remediation ?? "")?.[1];
  assert.equal(value, "lab-0a1b2c3d,lab-88888888,lab-99999999,lab-gone0000");
  const parts = made({ "agentworlds.dev/ignore-lineages": value }, left);
  await parts.pass();
  assert.ok(isGenesis(parts));
});

// Nobody worked in it: GitOps made the World again, or somebody changed spec.from of a new one.
test("an earlier World that has its genesis alone holds no work: the new one starts, and the old one stays as it is", async () => {
  const parts = made({}, [OLD], { numbers: [0] });
  await parts.pass();
  assert.ok(isGenesis(parts));
  assert.ok(parts.registries.writes.every((write) => !write.startsWith(OLD)));
});

const unpublished: [name: string, beside: Beside, tag?: string][] = [
  ["a capture that is in no version yet", {}, "capture-1"],
  ["a tag of somebody", {}, "keep"],
  ["a session that runs", { sandboxes: [ofOld({ compute: { runtime: "local", host: "a", id: "c", boot: 1 } })] }],
  [
    "a session whose version may have lost its tag",
    { sandboxes: [ofOld({ base: { version: 1, digest: digest("1") } })] },
  ],
  ["work that a host keeps", { runtimes: [{ ...runtime, status: { ...runtime.status, rescues: [rescueOfOld] } }] }],
];
for (const [name, beside, tag] of unpublished) {
  test(`genesis alone and ${name}: the World stalls as beside any earlier one`, async () => {
    const parts = made({}, [OLD], { ...beside, numbers: [0] });
    if (tag) parts.registries.repository(OLD).tags.set(tag, publishedHistory([0])[0]?.digest ?? "sha256:");
    const end = await parts.pass();
    assert.ok(end instanceof Terminal);
    assert.equal(end.reason, "PreviousLineageFound");
  });
}

test("genesis alone, and sessions of other Worlds: the World starts", async () => {
  const compute = { runtime: "local", host: "a", id: "c", boot: 1 };
  const foreign = { status: { world: { uid: "11111111-other" }, compute } };
  const parts = made({}, [OLD], { numbers: [0], sandboxes: [foreign] });
  await parts.pass();
  assert.ok(isGenesis(parts));
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
  test(`a registry that shows no catalog (${answer}): an earlier World is found by the index of lineages`, async () => {
    const parts = made();
    parts.registries.catalog = answer;
    enter(parts, OLD);
    const end = await parts.pass();
    assert.ok(end instanceof Terminal);
    assert.equal(end.reason, "PreviousLineageFound");
    assert.ok(end.message.includes(`127.0.0.1:5055/${OLD} (newest version 2)`), end.message);
    assert.deepEqual(parts.registries.writes, [], "a World that stalls is not entered");
    assert.deepEqual(parts.reasons(), ["PreviousLineageFound"]);
  });

  test(`no catalog (${answer}) and no entry: the World starts, and it is said what nobody could look for`, async () => {
    const parts = made();
    parts.registries.catalog = answer;
    await parts.pass();
    assert.ok(isGenesis(parts));
    assert.ok(parts.reasons().includes("LineagesNotListed"));
  });
}

test("with a catalog nothing is unknown: it is not said that something could not be listed", async () => {
  const parts = made({}, []);
  await parts.pass();
  assert.ok(isGenesis(parts));
  assert.ok(!parts.reasons().includes("LineagesNotListed"));
});

test("index and catalog count together, each lineage once, and what is no entry of a World is none", async () => {
  const unlisted = repositoryOf("lab", "99999999");
  const parts = made({}, [OLD, unlisted]);
  parts.registries.hidden.add(unlisted);
  enter(parts, OLD, unlisted);
  parts.registries.repository(INDEX).tags.set("latest", "sha256:");
  const end = await parts.pass();
  assert.ok(end instanceof Terminal);
  assert.equal(
    end.message,
    `an earlier World of this name left versions: 127.0.0.1:5055/${OLD} (newest version 2), 127.0.0.1:5055/${unlisted} (newest version 2)`,
  );
});

test("an entry whose repository is empty is no lineage: its World never published, or was deleted with its versions", async () => {
  const parts = made({}, []);
  enter(parts, OLD);
  await parts.pass();
  assert.ok(isGenesis(parts));
});

test("an index that cannot be listed is waited for: it is not taken for an empty one", async () => {
  const parts = made({}, []);
  parts.registries.repository(INDEX).failing.set("tags", "Unavailable");
  const end = await parts.pass();
  assert.ok(end instanceof Waiting);
  assert.equal(end.reason, "RegistryUnavailable");
  assert.equal(parts.world()?.status.head, undefined);
});

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
