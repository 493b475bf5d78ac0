import type { CommittedImage } from "../contract.ts";
import { RuntimeError } from "../errors.ts";
import { EngineRefused } from "./engine-errors.ts";
import { parseImageReference } from "./image-reference.ts";
import type { Images } from "./images.ts";
import { COMMIT_OF_LABEL } from "./labels.ts";

export interface CommitRequest {
  /** Full id: names are used again. */
  readonly containerId: string;
  readonly localName: string;
}

/**
 * Commits, or adopts the commit an earlier try made of the same container under that name. A name that stands for
 * another container's commit is never moved: `CommitFailed`.
 */
export async function commitContainer(
  images: Images,
  { containerId, localName }: CommitRequest,
  signal: AbortSignal,
): Promise<CommittedImage> {
  const earlier = await images.inspect(localName, signal);
  if (earlier !== undefined) {
    if (earlier.Config?.Labels?.[COMMIT_OF_LABEL] === containerId) return { imageId: earlier.Id };
    throw new RuntimeError("CommitFailed", `${localName} is the commit of another container`);
  }
  const labels = { [COMMIT_OF_LABEL]: containerId };
  try {
    return { imageId: await images.commit(containerId, { name: parseImageReference(localName), labels }, signal) };
  } catch (error) {
    if (!(error instanceof EngineRefused)) throw error;
    throw new RuntimeError("CommitFailed", explainRefusal(error.message), { cause: error });
  }
}

/** dockerd refuses layer 126 (maxLayerDepth); a container booted at 125 can never be committed again (layers.md §2.9). */
function explainRefusal(words: string): string {
  return words.includes("max depth exceeded")
    ? "the image has as many layers as the engine allows (125): its versions must be squashed before the next commit"
    : `the engine did not commit the container: ${words}`;
}
