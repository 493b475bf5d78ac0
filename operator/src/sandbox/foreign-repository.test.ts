/** `World.status.repository` was altered by hand: it names another tenant's. Nothing is booted from it or published into it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isTrue } from "../reconciler/conditions.ts";
import { isRepositoryOf, worldRepository } from "../registry/installation.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

type Parts = Awaited<ReturnType<typeof memoryParts>>;

const VICTIM = "127.0.0.1:5055/worlds/install/victims/lab-victim-u";
const isReady = (parts: Parts) => isTrue(parts.sandbox()?.status.conditions, "Ready");
const forge = (parts: Parts) =>
  parts.changeWorld((world) => ({ ...world, status: { ...world.status, repository: VICTIM } }));

const owner = { installation: "install", namespace: "team", world: "lab", uid: "world-uid" };
const repositories: [repository: string, isOwn: boolean][] = [
  [worldRepository("worlds", owner), true],
  [`127.0.0.1:5055/${worldRepository("earlier/prefix", owner)}`, true],
  [VICTIM, false],
  ["127.0.0.1:5055/worlds/install/team/lab-other-ui", false],
  ["127.0.0.1:5055/worlds/other/team/lab-world-ui", false],
  ["127.0.0.1:5055/worlds/install/team/lab-world-ui/", false],
  ["", false],
];
for (const [repository, isOwn] of repositories) {
  test(`${repository || "an empty name"} is ${isOwn ? "" : "not "}the World's own`, () =>
    assert.equal(isRepositoryOf(repository, owner), isOwn));
}

test("nothing boots from another tenant's repository", async () => {
  const parts = await memoryParts({});
  forge(parts);
  await parts.pass();
  await parts.pass();
  assert.equal(parts.host.containers.size, 0);
  assert.ok(parts.failures.some((failure) => failure.includes("which is not that World's")));
});

test("the World puts it right and says so; the session boots, and its work is saved in its own", async () => {
  const parts = await memoryParts({ withWorld: true });
  forge(parts);
  await parts.until("Ready", () => isReady(parts));
  assert.ok(parts.events.some(({ reason }) => reason === "ForeignRepository"));
  const [container] = parts.host.containers.values();
  assert.match(container?.image ?? "", /worlds\/install\/team\/lab-world-ui@/);
  parts.work("one");
  forge(parts);
  await parts.until("Hibernated", () => isTrue(parts.sandbox()?.status.conditions, "Hibernated"));
  assert.deepEqual(parts.host.worked(parts.world().status.head?.digest ?? ""), ["base", "one"]);
  assert.ok(!parts.world().status.repository?.includes("victims"));
  assert.ok(!parts.world().status.head?.image.includes("victims"));
});
