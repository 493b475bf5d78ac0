/** Reads the versions of a repository. A failure to list or to read throws: it is never "none" and never "gone". */
import type { Digest, RegistryClient } from "../registry/contract.ts";
import { isRegistryError } from "../registry/errors.ts";
import { inParallel } from "../registry/in-parallel.ts";
import { type FoundReference, MOST_RECOVERED, numberOfTag } from "./recovery.ts";
import type { RememberedVersion } from "./sessions.ts";

/** Manifests read at the same time. */
const PARALLEL_READS = 4;

export interface LineageQuestion {
  readonly repository: string;
  /** As just listed. */
  readonly tags: readonly string[];
  /** Read by digest, where no tag leads to them. */
  readonly remembered?: readonly RememberedVersion[];
  /** Read although they are older than the newest. */
  readonly pinned?: readonly number[];
}

/** The newest version tags, the pinned ones and what is remembered, each with its manifest. */
export async function readVersions(
  client: RegistryClient,
  question: LineageQuestion,
  signal: AbortSignal,
): Promise<FoundReference[]> {
  const bounds = { limit: PARALLEL_READS, signal };
  const { repository, remembered = [] } = question;
  const tagged = await inParallel(tagsToRead(question), bounds, ({ tag, number }, until) =>
    readReference(client, { repository, reference: tag, number }, until),
  );
  const known = new Set(tagged.flatMap((one) => (one.kind === "image" ? [one.digest] : [])));
  const untagged = await inParallel(
    remembered.filter(({ digest }) => !known.has(digest)),
    bounds,
    ({ digest, version }, until) => readReference(client, { repository, reference: digest, number: version }, until),
  );
  return [...tagged, ...untagged];
}

function tagsToRead({ tags, pinned = [] }: LineageQuestion): { tag: string; number: number }[] {
  const versions = tags
    .flatMap((tag) => {
      const number = numberOfTag(tag);
      return number === undefined ? [] : [{ tag, number }];
    })
    .sort((a, b) => b.number - a.number);
  return versions.filter(({ number }, index) => index < MOST_RECOVERED || pinned.includes(number));
}

async function readReference(
  client: RegistryClient,
  { repository, reference, number }: { repository: string; reference: Digest | string; number: number },
  signal: AbortSignal,
): Promise<FoundReference> {
  const found = { reference, number };
  try {
    const { digest, manifest } = await client.getManifest(repository, reference, signal);
    if (manifest.kind === "index") return { ...found, kind: "other" };
    return { ...found, kind: "image", digest, manifest: manifest.value };
  } catch (error) {
    if (isRegistryError(error, "NotFound")) return { ...found, kind: "lost", because: "the registry has no manifest" };
    const isDamaged = isRegistryError(error, "DigestMismatch") || isRegistryError(error, "Malformed");
    if (!isDamaged) throw error;
    return { ...found, kind: "lost", because: error.message };
  }
}
