/** Why a version could not be published. `code` becomes part of the condition's message. */
export type PublicationErrorCode =
  /** A manifest, config or layer did not read back as written. */
  | "ReadBackFailed"
  /** The version's tag exists with another digest: it is never overwritten. */
  | "TagTaken"
  /** What the host pushed does not hang together (layer count against diffIDs, unknown media type). */
  | "CaptureMalformed"
  /** `World.status` does not name what a version must say about its origin. */
  | "LineageUnreadable"
  /** The image has as many layers as an engine can boot and commit. */
  | "TooManyLayers";

export class PublicationError extends Error {
  override readonly name = "PublicationError";
  readonly code: PublicationErrorCode;
  constructor(code: PublicationErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
  }
}
