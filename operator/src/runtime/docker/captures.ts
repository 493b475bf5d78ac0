import { CAPTURE_REPOSITORY, type ListedCapture } from "../contract.ts";
import type { ListedImage } from "./images.ts";
import { IMAGE_LABEL, ownerOf } from "./labels.ts";

/** The captures among commits: a commit carries its container's labels, and its local name carries the operation. */
export function capturesOf(commits: readonly ListedImage[]): ListedCapture[] {
  return commits.flatMap(({ Labels, RepoTags, Created }) => {
    const owner = ownerOf(Labels ?? {});
    if (owner === undefined) return [];
    const image = Labels?.[IMAGE_LABEL];
    return (RepoTags ?? [])
      .filter((localName) => localName.startsWith(`${CAPTURE_REPOSITORY}:`))
      .map((localName) => ({
        localName,
        operation: localName.slice(CAPTURE_REPOSITORY.length + 1),
        owner,
        ...(image === undefined ? {} : { image }),
        createdAt: Created * 1000,
      }));
  });
}
