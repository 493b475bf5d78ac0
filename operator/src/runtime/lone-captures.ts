/** What becomes of a capture that its Sandbox does not name: decided without I/O. */
import { computeName, type ListedCapture, type ListedCompute } from "./contract.ts";
import type { KeptWork } from "./kept-work.ts";
import { accountsFor } from "./rescues.ts";

/** A capture may be younger than what was read of its Sandbox. */
const CAPTURE_MIN_AGE_MS = 600_000;

/** `orphan`: it may be the only copy of work, and is written down as a rescue before anything may remove it. */
export type CaptureVerdict = "keep" | "remove" | "orphan";

export interface CaptureFindings {
  /** What the engine has of this installation. */
  readonly present: readonly ListedCompute[];
  readonly captures: readonly ListedCapture[];
  /** Whether its Sandbox is there: then that one has come past it. */
  readonly hasSandbox: boolean;
  readonly kept: KeptWork;
  /** Epoch milliseconds. */
  readonly now: number;
}

export function judgeCapture(capture: ListedCapture, findings: CaptureFindings): CaptureVerdict {
  const { kept, present, captures, now } = findings;
  // A full list cannot name everything that is kept.
  if (kept.isFull || kept.rescues.some((rescue) => isOf(rescue, capture))) return "keep";
  const id = computeName(capture.owner);
  const isCopy =
    findings.hasSandbox ||
    kept.settled.has(capture.operation) ||
    present.some((compute) => compute.id === id) ||
    captures.some((other) => holdsMore(other, capture));
  if (!isCopy) return "orphan";
  return now - capture.createdAt < CAPTURE_MIN_AGE_MS ? "keep" : "remove";
}

const isOf = (rescue: KeptWork["rescues"][number], { operation, localName }: ListedCapture): boolean =>
  accountsFor(rescue, operation) || rescue.capture === localName;

/** A later capture of the same container. Of two of the same second both stay. */
const holdsMore = (other: ListedCapture, one: ListedCapture): boolean =>
  computeName(other.owner) === computeName(one.owner) && other.createdAt > one.createdAt;
