/** Versions as a publication leaves them in the registry, and what `World.status` said of them. */
import type { WorldVersion } from "@agentworlds/crds";
import { MEDIA_TYPES } from "../registry/contract.ts";
import { digestOf } from "../registry/digest.ts";
import { at, digest } from "../runtime/test-objects.test-kit.ts";
import type { MemoryRegistry } from "../snapshot/memory-registry.test-kit.ts";
import { manifestOfVersion } from "../snapshot/publish.ts";
import { annotationsOf, type VersionFacts } from "../snapshot/version-annotations.ts";
import type { FoundReference } from "./recovery.ts";

type Change = { parent?: string | undefined; uid?: string; operation?: string; facts?: Partial<VersionFacts> };

/** A layer per version, of 100 bytes at genesis and 10 bytes after it. */
const layerBytes = (index: number): Uint8Array =>
  new TextEncoder().encode(`layer ${index}`.padEnd(index === 0 ? 100 : 10, "."));

const layersOf = (number: number) =>
  Array.from({ length: number + 1 }, (_, index) => ({
    mediaType: MEDIA_TYPES.ociLayerGzip,
    digest: digestOf(layerBytes(index)),
    size: layerBytes(index).byteLength,
  }));

export const factsOf = (number: number, change: Change = {}): VersionFacts => ({
  operation: change.operation ?? `operation-${number}`,
  world: { namespace: "team", name: "lab", uid: change.uid ?? "world-uid" },
  version: number,
  ...(change.parent === undefined ? {} : { parent: change.parent }),
  reason: number === 0 ? "Genesis" : "Deadline",
  consistency: number === 0 ? "Image" : "Frozen",
  description: `text ${number}`,
  createdBy: { user: "ada" },
  causedBy: { user: "bob", agent: "coder" },
  createdAt: at(number),
  genesis: { image: "busybox:1", digest: digest("9"), platform: "linux/amd64" },
  sizeBytes: number === 0 ? 100 : 10,
  ...(number === 0 ? {} : { sandbox: { name: `s${number}`, uid: `s${number}-uid` } }),
  ...change.facts,
});

/** Version `number` as published: its manifest, and its entry in `status.versions`. */
export function publishedVersion(number: number, change: Change = {}) {
  const facts = factsOf(number, change);
  const layers = layersOf(Math.min(number, 20));
  const config = new TextEncoder().encode(
    JSON.stringify({
      os: "linux",
      architecture: "amd64",
      number,
      rootfs: { type: "layers", diff_ids: layers.map((layer) => layer.digest) },
    }),
  );
  const bytes = manifestOfVersion(facts, { config, layers });
  const { createdBy: _, world: __, genesis: ___, parent: ____, recovered, hook, ...own } = facts;
  const entry: WorldVersion = {
    ...own,
    digest: digestOf(bytes),
    ...(change.parent === undefined ? {} : { parent: asDigest(change.parent) }),
    ...(recovered === undefined ? {} : { recovered }),
    ...(hook === undefined ? {} : { hook }),
    totalBytes: layers.reduce((sum, layer) => sum + layer.size, 0),
    layers: layers.length,
  };
  const manifest = {
    config: { mediaType: MEDIA_TYPES.ociConfig, digest: digestOf(config), size: config.byteLength },
    layers,
    annotations: annotationsOf(facts),
  };
  const blobs = [config, ...layers.map((_, index) => layerBytes(index))];
  return { digest: digestOf(bytes), operation: facts.operation, number, bytes, blobs, manifest, entry };
}

/** Versions with these numbers, each deriving from the one before it. */
export function publishedHistory(numbers: readonly number[], change: Change = {}): PublishedVersion[] {
  const history: PublishedVersion[] = [];
  for (const number of numbers) {
    const parent = history.at(-1)?.digest ?? change.parent;
    history.push(publishedVersion(number, { ...change, parent }));
  }
  return history;
}

export type PublishedVersion = ReturnType<typeof publishedVersion>;

/** Puts them into a registry, tagged, the newest as `latest`. */
export function putHistory(registry: MemoryRegistry, history: readonly PublishedVersion[]): void {
  for (const { number, digest: found, bytes, blobs } of history) {
    for (const blob of blobs) registry.blobs.set(digestOf(blob), blob);
    registry.manifests.set(found, bytes);
    registry.tags.set(`v${number}`, found);
    registry.tags.set("latest", found);
  }
}

/** As the registry shows it under its tag. */
export const foundOf = ({ number, digest: found, manifest }: PublishedVersion): FoundReference => ({
  kind: "image",
  reference: `v${number}`,
  number,
  digest: found,
  manifest,
});

export const headOf = (repository: string, { number, digest: found }: PublishedVersion) => ({
  version: number,
  digest: found,
  image: `${repository}@${found}`,
});

const asDigest = (text: string): WorldVersion["digest"] => `sha256:${text.slice("sha256:".length)}`;
