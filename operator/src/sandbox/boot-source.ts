/** The last look before a hold turns into a boot: never silently an older state, never a head that is known to be broken. */
import type { VersionPointer, World } from "@agentworlds/crds";
import { findCondition } from "../reconciler/conditions.ts";
import { Waiting } from "../reconciler/policy.ts";
import { MOST_LAYERS } from "../registry/layer-limit.ts";
import { explainContradiction, explainFull, explainRegistryHead, REMEDY_FULL } from "../world/lineage.ts";
import { findAhead, recordAhead } from "../world/registry-ahead.ts";
import { explainOwnRegistryErrors } from "../world/source-errors.ts";
import { statusOf } from "../world/status-writer.ts";
import type { SandboxScope } from "./scope.ts";
import { refOf, repositoryName } from "./world-of.ts";

/** One listing of tags, outside the desk's turn: after a restore of etcd the registry has versions that head does not know. `world` is read afresh. */
export async function requireNewestHead(scope: SandboxScope, world: World): Promise<void> {
  const { registry, worldWriter } = scope.dependencies;
  const { signal } = scope.context;
  const contradiction = explainContradiction(statusOf(world));
  if (contradiction !== undefined) throw headContradicted(contradiction);
  const repository = repositoryName(scope);
  const ahead = await explainOwnRegistryErrors(`looking for newer versions in ${repository}`, async () => {
    const tags = await registry.client.listTags(repository, signal);
    return findAhead({ registry, world, repository, tags }, signal);
  });
  if (!ahead) return;
  const recorded = statusOf(await recordAhead(worldWriter, refOf(world), { ahead, signal }));
  if (!recorded.registryHead) return;
  throw headBehind(explainRegistryHead(recorded, recorded.registryHead));
}

const headContradicted = (message: string): Waiting =>
  new Waiting("HeadContradicted", {
    message,
    remediation: "the World asks the registry which is right; it boots when both say the same",
    afterMs: 15_000,
  });

export const headBehind = (message: string): Waiting =>
  new Waiting("HeadBehindRegistry", {
    message,
    remediation: "see the World's condition HeadBehindRegistry",
    afterMs: 60_000,
  });

/** Layers of a version by the World's list; undefined: it is not listed. */
export const layersOf = (world: World | undefined, { digest }: VersionPointer): number | undefined =>
  world?.status?.versions?.find((version) => version.digest === digest)?.layers;

/** One layer more, and no engine would boot it: what is worked on such a version cannot become one. */
export const isFull = (world: World | undefined, version: VersionPointer): boolean =>
  (layersOf(world, version) ?? 0) >= MOST_LAYERS;

/** A session on head ends in a version: one that could not be listed would make a rescue of every ending. */
export function requireRoom(world: World): void {
  const message = explainFull(statusOf(world));
  if (message === undefined) return;
  throw new Waiting("TooManyVersions", { message, remediation: REMEDY_FULL, afterMs: 60_000 });
}

/** Head was seen to be lost or damaged: said by name here, and not by an engine that cannot pull it. */
export function requireAvailableHead(world: World): void {
  const available = findCondition(statusOf(world).conditions, "HeadAvailable");
  if (available?.status !== "False") return;
  throw new Waiting(available.reason, {
    message: `head of World ${world.metadata.name} cannot be booted: ${available.message}`,
    remediation: "an earlier version can be booted with spec.world.version and closePolicy Discard",
    afterMs: 60_000,
  });
}
