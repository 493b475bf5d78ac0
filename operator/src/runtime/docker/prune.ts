import type { ListedImage } from "./images.ts";

/**
 * Names to remove so that at most `keep` images of a prefix remain on the host: unused ones, oldest first. An image of
 * several names goes by all those of the prefix; its other names are not ours.
 */
export function choosePruned(
  images: readonly ListedImage[],
  options: { repositoryPrefix: string; keep: number; used: ReadonlySet<string> },
): string[] {
  const ours = images
    .map((image) => ({ ...image, names: namesOf(image).filter((name) => isBelow(name, options.repositoryPrefix)) }))
    .filter((image) => image.names.length > 0)
    .sort((a, b) => a.Created - b.Created);
  const excess = Math.max(0, ours.length - Math.max(0, options.keep));
  return ours
    .filter((image) => !options.used.has(image.Id))
    .slice(0, excess)
    .flatMap((image) => image.names);
}

const namesOf = (image: ListedImage): string[] =>
  [...(image.RepoTags ?? []), ...(image.RepoDigests ?? [])].filter((name) => !name.startsWith("<none>"));

/** `a/b` is below `a/b` and `a`, not below `a/bc`. */
function isBelow(name: string, prefix: string): boolean {
  const bare = prefix.replace(/\/+$/, "");
  return name.startsWith(bare) && /^[/:@]/.test(name.slice(bare.length));
}
