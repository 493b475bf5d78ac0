/**
 * Under which operation the work that stays behind is published. An ending's own, with all that it says: from its capture on
 * the container stands still. A running session's snapshot is not its ending: the session works on after the capture, so what
 * was captured, or is a version already, proves nothing about the container. Decided without I/O.
 */
import { CONSISTENCIES, type RuntimeRescue, type Sandbox, type SandboxOperation } from "@agentworlds/crds";
import type { PublishedVersion } from "../world/publication.ts";
import { SNAPSHOT_REQUESTED, versionReasonOf } from "./operation.ts";

export interface RescuedOperation {
  /** Names the rescue. The same on every try: the operator may end before all of it is written down. */
  readonly id: string;
  /** The ending that could not come to its own end. */
  readonly ending?: SandboxOperation;
  /** What that ending has captured is all of the work. */
  readonly isCaptured: boolean;
  /** What was under way instead: its capture is older than the container. */
  readonly snapshot?: NonNullable<RuntimeRescue["snapshot"]>;
}

export interface OperationFindings {
  /** The version that the operation has made of this boot's work. */
  readonly committed: Pick<PublishedVersion, "reason"> | undefined;
  /** The World has a version of the operation, whatever it holds: nothing more is published under its id. */
  readonly isUsedUp: boolean;
}

/** Whether an operation's version is the end of its session: a snapshot that was made before it is not. */
export const isEndedBy = (
  { verb }: Pick<SandboxOperation, "verb">,
  { reason }: Pick<PublishedVersion, "reason">,
): boolean => verb !== "Snapshot" && reason !== versionReasonOf({ reason: SNAPSHOT_REQUESTED });

export function judgeRescued(
  { metadata, status }: Pick<Sandbox, "metadata" | "status">,
  { committed, isUsedUp }: OperationFindings,
): RescuedOperation {
  const { operation } = status;
  const own = { id: `lost-${metadata.uid}-${status.compute?.boot ?? status.boot ?? 0}`, isCaptured: false };
  if (!operation) return own;
  const isEnding = operation.verb !== "Snapshot";
  const isEnded = committed !== undefined && isEndedBy(operation, committed);
  // What an older operator captured of processes that ran on is as old as a snapshot.
  const standsStill = isEnding && operation.consistency !== CONSISTENCIES.Fuzzy;
  if (isEnded || (standsStill && !isUsedUp)) return { id: operation.id, ending: operation, isCaptured: true };
  return {
    ...own,
    ...(isEnding ? { ending: operation } : {}),
    // Also one that is committed: what is left of its capture goes with the rescue.
    ...(isUsedUp && !committed ? {} : { snapshot: snapshotOf(operation) }),
  };
}

const snapshotOf = ({ id, consistency, description, causedBy }: SandboxOperation) => ({
  operation: id,
  ...(consistency === undefined ? {} : { consistency }),
  ...(description === undefined ? {} : { description }),
  ...(causedBy === undefined ? {} : { causedBy }),
});
