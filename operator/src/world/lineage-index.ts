/**
 * The index of lineages: beside the repositories of the Worlds of a name one more, with a tag for each of them. Every registry
 * lists tags; few show their catalog. A World is entered before it has a byte, so that none is missed that has any, and whoever
 * makes it anew finds it (previous.ts, docs/adr/0012).
 */
import { CONTINUE, type PhaseResult } from "../reconciler/reconcile.ts";
import { type Digest, type ImageManifest, MEDIA_TYPES } from "../registry/contract.ts";
import { digestOf } from "../registry/digest.ts";
import { isRegistryError, RegistryError } from "../registry/errors.ts";
import { LINEAGE_ID_LENGTH, lineageIndexBeside } from "../registry/installation.ts";
import { lineageAnnotations } from "../snapshot/version-annotations.ts";
import { repositoryInRegistry } from "./own-repository.ts";
import type { WorldScope } from "./scope.ts";
import { explainOwnRegistryErrors, registryReason } from "./source-errors.ts";
import { statusOf, type WorldRef } from "./status-writer.ts";

/** What the empty config and the one layer of an artifact without content are (OCI image specification 1.1). */
const EMPTY = new TextEncoder().encode("{}");
const EMPTY_DESCRIPTOR = { mediaType: MEDIA_TYPES.ociEmpty, digest: digestOf(EMPTY), size: EMPTY.byteLength } as const;
const ARTIFACT_TYPE = "application/vnd.agentworlds.lineage.v1";

/** An entry may be lost with the registry's disk, or by hand. */
const LOOK_AGAIN_MS = 24 * 3_600_000;

/** One World in the index. */
export interface LineageEntry {
  /** The index, as a repository of the registry. */
  readonly index: string;
  readonly tag: string;
  readonly manifest: Uint8Array;
  readonly digest: Digest;
}

/** The same World makes the same bytes, and no other World makes them: to delete them takes no other entry along. */
export function lineageEntry(world: WorldRef, repository: string): LineageEntry {
  const content: ImageManifest & { readonly artifactType: string } = {
    schemaVersion: 2,
    mediaType: MEDIA_TYPES.ociManifest,
    artifactType: ARTIFACT_TYPE,
    config: EMPTY_DESCRIPTOR,
    layers: [EMPTY_DESCRIPTOR],
    annotations: lineageAnnotations(world, repository),
  };
  const manifest = new TextEncoder().encode(JSON.stringify(content));
  const tag = repository.slice(-LINEAGE_ID_LENGTH);
  return { index: lineageIndexBeside(repository), tag, manifest, digest: digestOf(manifest) };
}

/** Which Worlds this process has seen in their index, and when: a settled World does not ask again in each pass. */
export class SeenInIndex {
  readonly #seen = new Map<string, { readonly uid: string; readonly at: number }>();

  isDue(world: WorldRef, now: number): boolean {
    const seen = this.#seen.get(keyOf(world));
    return seen?.uid !== world.uid || now - seen.at >= LOOK_AGAIN_MS;
  }

  note(world: WorldRef, now: number): void {
    this.#seen.set(keyOf(world), { uid: world.uid, at: now });
  }

  /** By `namespace/name`, once there is no such World. */
  forget(key: string): void {
    this.#seen.delete(key);
  }
}

const keyOf = ({ namespace, name }: WorldRef): string => `${namespace}/${name}`;

/** Before the first byte goes to the World's repository: what fails here is waited for. */
export async function enterLineage(scope: WorldScope): Promise<void> {
  await explainOwnRegistryErrors("entering the World in the index of lineages", () => enter(scope));
}

/** Worlds that are older than the index, and entries that were lost. Sessions are not affected while it does not succeed. */
export async function keepEntered(scope: WorldScope): Promise<PhaseResult> {
  const { ref, context, seenInIndex, head } = scope;
  const isDue = statusOf(scope.world).head !== undefined && seenInIndex.isDue(ref, context.clock.now());
  // A registry that cannot be asked for head says so by itself, and is asked again in a minute.
  if (!isDue || head?.status === "Unknown") return CONTINUE;
  try {
    await enter(scope);
  } catch (error) {
    if (!(error instanceof RegistryError)) throw error;
    const { message } = error;
    scope.problems = [...scope.problems, { type: "LineageNotIndexed", reason: registryReason(error), message }];
  }
  return CONTINUE;
}

/** An entry that is there is left as it is. One that was put counts when it is listed: it is found by nothing else. */
async function enter(scope: WorldScope): Promise<void> {
  const { client } = scope.dependencies.registry;
  const { signal, clock } = scope.context;
  const { index, tag, manifest } = lineageEntry(scope.ref, repositoryInRegistry(scope));
  if (!(await client.listTags(index, signal)).includes(tag)) {
    await client.putBlob(index, EMPTY, signal);
    await client.putManifest(index, { reference: tag, mediaType: MEDIA_TYPES.ociManifest, bytes: manifest }, signal);
    if (!(await client.listTags(index, signal)).includes(tag)) {
      throw new RegistryError("Unavailable", `tag ${tag} of ${index} was put and is not listed`);
    }
  }
  scope.seenInIndex.note(scope.ref, clock.now());
}

/** After the World's versions are deleted. Repeatable; another operator may have written the entry in other words. */
export async function leaveIndex(scope: WorldScope): Promise<void> {
  const { client } = scope.dependencies.registry;
  const { signal } = scope.context;
  const { index, tag, digest } = lineageEntry(scope.ref, repositoryInRegistry(scope));
  await client.deleteManifest(index, digest, signal);
  if (!(await client.listTags(index, signal)).includes(tag)) return;
  try {
    await client.deleteManifest(index, (await client.getManifest(index, tag, signal)).digest, signal);
  } catch (error) {
    if (!isRegistryError(error, "NotFound")) throw error;
  }
}

/** Repositories of Worlds of this name, by the index; the own one is among them once it is entered. */
export async function lineagesInIndex(scope: WorldScope): Promise<readonly string[]> {
  const own = repositoryInRegistry(scope);
  const index = lineageIndexBeside(own);
  const tags = await explainOwnRegistryErrors(`looking for earlier Worlds in ${index}`, () =>
    scope.dependencies.registry.client.listTags(index, scope.context.signal),
  );
  const entries = tags.filter((tag) => tag.length === LINEAGE_ID_LENGTH);
  return entries.map((tag) => `${own.slice(0, -LINEAGE_ID_LENGTH)}${tag}`);
}
