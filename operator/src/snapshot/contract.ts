/**
 * How a session's filesystem becomes layers in the World's repository. One interface, so that `docker commit` can be
 * replaced by the snapshot engine without a controller noticing. Every step may be repeated with the same operation id.
 */
import type { Descriptor, Digest } from "../registry/contract.ts";
import type { ComputeOwner, RuntimeDriver } from "../runtime/contract.ts";

/** Whose capture it has to be: an operation's id is read from status, and may name what another session left behind. */
export type CaptureOwner = Pick<ComputeOwner, "installation" | "namespace" | "sandboxUid">;

export interface CaptureRequest {
  /** Operation id; names what the steps leave behind, so that a retry adopts it. */
  readonly operation: string;
  readonly driver: RuntimeDriver;
  readonly computeId: string;
  readonly owner: CaptureOwner;
  /** The World's repository in the installation's registry. */
  readonly repository: string;
}

/** What an operation brought into a repository before its version was made. */
export interface PushedCapture extends Pick<CaptureRequest, "operation" | "repository"> {
  /** Whether the World names this manifest as one of its versions. Asked right before a deletion. */
  readonly isVersion: (digest: Digest) => boolean | Promise<boolean>;
}

/** Whose container a capture is of. */
export interface CaptureOrigin {
  readonly sandboxUid: string;
  readonly boot: number;
  /** Version that the container was made from; absent where nothing says so. */
  readonly bootedFrom?: Digest;
}

/** A whole filesystem as layers whose blobs are in the repository. */
export interface UploadedCapture {
  readonly layers: readonly Descriptor[];
  /** One uncompressed digest for each layer, in the same order. */
  readonly diffIds: readonly string[];
  /** As the container's labels say; absent where they do not. */
  readonly origin?: CaptureOrigin;
  /** ISO time of the capture, by the host's clock. */
  readonly capturedAt?: string;
}

export interface SnapshotMechanism {
  /** Takes the filesystem as it stands. The caller has frozen the session; afterwards it may be thawed or removed. */
  capture(request: CaptureRequest, signal: AbortSignal): Promise<void>;
  /** Whether an earlier try of this operation has captured already; the container itself may be gone since. */
  isCaptured(capture: Pick<CaptureRequest, "operation" | "driver" | "owner">, signal: AbortSignal): Promise<boolean>;
  /** Brings the captured layers into the repository. No manifest of the product is written here. */
  upload(request: CaptureRequest, signal: AbortSignal): Promise<UploadedCapture>;
  /** What an earlier try of this operation has brought into the repository whole; undefined when there is none. */
  uploaded(
    request: Pick<CaptureRequest, "operation" | "repository">,
    signal: AbortSignal,
  ): Promise<UploadedCapture | undefined>;
  /**
   * Drops what an earlier try captured on the host, so that the next capture is of the tree as it stands then. `Foreign`: what
   * has the operation's name is another session's; it stays, and nothing can be captured under that name.
   */
  forgetCapture(
    capture: Pick<CaptureRequest, "operation" | "driver" | "owner">,
    signal: AbortSignal,
  ): Promise<"Free" | "Foreign">;
  /** Drops what `capture` and `upload` left behind for this operation. Nothing left is a success. */
  forget(request: Omit<CaptureRequest, "computeId"> & PushedCapture, signal: AbortSignal): Promise<void>;
  /** Drops what `upload` left behind in the repository, and never a version: a tag can be made to name anything. */
  forgetUploaded(pushed: PushedCapture, signal: AbortSignal): Promise<"Dropped" | "Nothing" | "IsVersion">;
}
