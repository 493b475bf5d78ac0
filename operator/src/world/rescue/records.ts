/** What the World writes down of its rescues, as pure changes of its status; status-writer.ts carries them out. */
import {
  LIMITS,
  type LostWork,
  type WorldRequest,
  type WorldRequestResult,
  type WorldRescue,
  type WorldStatus,
} from "@agentworlds/crds";
import { accountsFor } from "../../runtime/rescues.ts";
import type { WorldStatusPatch } from "../status-writer.ts";

type Change = WorldStatusPatch | undefined;

/**
 * The hold passes to the rescue in one write, so that no other session gets in between. A full list holds nobody's ending up:
 * the Runtime has the record too, and a session that might have found the list full was not let in (lineage.ts).
 */
export function withNewRescue({ rescues = [], holder, pending }: WorldStatus, rescue: WorldRescue): Change {
  const isNew = !rescues.some((known) => known.operation === rescue.operation) && rescues.length < LIMITS.rescues;
  return unlessEmpty({
    ...(isNew ? { rescues: [...rescues, rescue] } : {}),
    ...(holder?.uid === rescue.sandbox.uid ? { holder: null } : {}),
    ...(accountsFor(rescue, pending?.operation) ? { pending: null } : {}),
  });
}

export interface RescueChange {
  readonly operation: string;
  readonly fields: Pick<Partial<WorldRescue>, "attempts" | "retryAt" | "lastError" | "capture" | "consistency">;
  /** Gives up the number that the attempt has reserved, so that it keeps nobody waiting. */
  readonly abandon?: boolean;
}

export function withChangedRescue(
  { rescues = [], pending }: WorldStatus,
  { operation, fields, abandon }: RescueChange,
): Change {
  const known = rescues.find((rescue) => rescue.operation === operation);
  return unlessEmpty({
    ...(known
      ? {
          rescues: rescues.map((rescue) => (rescue.operation === operation ? { ...rescue, ...fields } : rescue)),
        }
      : {}),
    ...(abandon && accountsFor(known ?? { operation }, pending?.operation) ? { pending: null } : {}),
  });
}

export function withoutRescue(
  { rescues = [], lostWork = [], pending }: WorldStatus,
  { operation, lost }: { readonly operation: string; readonly lost?: LostWork },
): Change {
  const ended = rescues.find((rescue) => rescue.operation === operation);
  const left = rescues.filter((rescue) => rescue !== ended);
  const isNew = lost !== undefined && !lostWork.some((known) => known.operation === operation);
  return unlessEmpty({
    ...(left.length < rescues.length ? { rescues: left } : {}),
    ...(isNew ? { lostWork: [...lostWork, lost].slice(-LIMITS.lostWork) } : {}),
    ...(accountsFor(ended ?? { operation }, pending?.operation) ? { pending: null } : {}),
  });
}

export function withLossNoted(
  { lostWork = [] }: WorldStatus,
  { operation, user }: { readonly operation: string; readonly user: string },
): Change {
  const isOpen = (lost: LostWork) => lost.operation === operation && lost.discardedBy === undefined;
  if (!lostWork.some(isOpen)) return undefined;
  return { lostWork: lostWork.map((lost) => (isOpen(lost) ? { ...lost, discardedBy: user } : lost)) };
}

export function withAnswer(
  { requests = [] }: WorldStatus,
  { id, result }: { readonly id: string; readonly result: WorldRequestResult },
): Change {
  const isOpen = (request: WorldRequest) => request.id === id && request.result === undefined;
  if (!requests.some(isOpen)) return undefined;
  return { requests: requests.map((request) => (isOpen(request) ? { ...request, result } : request)) };
}

const unlessEmpty = (patch: WorldStatusPatch): Change => (Object.keys(patch).length === 0 ? undefined : patch);
