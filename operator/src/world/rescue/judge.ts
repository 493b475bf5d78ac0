/** What a rescue wants now: a pure decision over what is written of it and of its World. */

import type { WorldRescue, WorldStatus } from "@agentworlds/crds";
import type { Digest } from "../../registry/contract.ts";
import { DEFAULT_RESCUE_SECONDS } from "../../runtime/rescue-time.ts";

export type RescueStep =
  /** Its version is there: container, capture and records go. With `isLast` the World's record goes in any case. */
  | { readonly kind: "release"; readonly isLast: boolean }
  /** Try to publish. With `isLast` its time is over: what fails now is given up. */
  | { readonly kind: "attempt"; readonly isLast: boolean }
  /** By rule it cannot be published as head stands; it is kept until its time is over. */
  | { readonly kind: "keep"; readonly ms: number; readonly because: KeptBecause }
  /** The next step is due after this. */
  | { readonly kind: "wait"; readonly ms: number }
  /** Its time is over and it cannot be published. */
  | { readonly kind: "expire" };

/**
 * `BaseBehindHead`: a session that ignored it has published. `BaseUnknown`: nobody knows what it began from.
 * `HeadBehindRegistry`: nobody has said yet which head is right.
 */
export type KeptBecause = "BaseBehindHead" | "BaseUnknown" | "HeadBehindRegistry" | "WorldHeld";

/** The longest pause between two attempts. */
export const LONGEST_PAUSE_MS = 300_000;
const FIRST_PAUSE_MS = 10_000;

/** Back-off of a rescue, kept in its record so that it survives a restart: 10 s doubling to 5 min. */
export const rescueBackoffMs = (attempts: number): number =>
  Math.min(FIRST_PAUSE_MS * 2 ** Math.max(0, attempts - 1), LONGEST_PAUSE_MS);

/** Epoch milliseconds. A record of an older operator names no end. */
export const expiryOf = ({ since, expiresAt }: Pick<WorldRescue, "since" | "expiresAt">): number =>
  expiresAt === undefined ? Date.parse(since) + DEFAULT_RESCUE_SECONDS * 1000 : Date.parse(expiresAt);

/** `now` in epoch milliseconds; `isAsked`: somebody wants an attempt at once. */
export function judgeRescue(
  status: WorldStatus,
  rescue: WorldRescue,
  { now, isAsked }: { readonly now: number; readonly isAsked: boolean },
): RescueStep {
  const left = expiryOf(rescue) - now;
  const isDue = isAsked || left <= 0 || msUntilRetry(rescue, now) <= 0;
  if (status.versions?.some((version) => version.operation === rescue.operation)) {
    return isDue ? { kind: "release", isLast: left <= 0 } : { kind: "wait", ms: msUntilRetry(rescue, now) };
  }
  const because = whyNotNow(status, rescue);
  if (because) return left <= 0 ? { kind: "expire" } : { kind: "keep", ms: left, because };
  return isDue
    ? { kind: "attempt", isLast: left <= 0 }
    : { kind: "wait", ms: Math.min(left, msUntilRetry(rescue, now)) };
}

/** Never longer than the longest pause: a clock that was set back must not put a retry off for hours. */
const msUntilRetry = ({ retryAt }: WorldRescue, now: number): number =>
  retryAt === undefined ? 0 : Math.max(0, Math.min(Date.parse(retryAt) - now, LONGEST_PAUSE_MS));

/**
 * What the work is based on now: the snapshot that was under way is a version of the same session, and may have been published
 * before its container was found after all.
 */
export function baseOf({ head, versions = [] }: WorldStatus, { base, snapshot }: WorldRescue): Digest | undefined {
  const newest = versions.find(({ digest }) => digest === head?.digest);
  const isOwn = snapshot !== undefined && newest?.operation === snapshot.operation && newest.parent === base;
  return isOwn ? newest.digest : base;
}

function whyNotNow(status: WorldStatus, rescue: WorldRescue): KeptBecause | undefined {
  const base = baseOf(status, rescue);
  // Also when its own Sandbox holds the World: for a later boot.
  if (status.holder) return "WorldHeld";
  if (status.registryHead) return "HeadBehindRegistry";
  if (base === undefined) return "BaseUnknown";
  return status.head?.digest === base ? undefined : "BaseBehindHead";
}
