/**
 * Deadlines as pure decisions (DESIGN §4.4). Stored, absolute, in epoch milliseconds; they move only by these rules.
 */
import type { SandboxOperation } from "@agentworlds/crds";

export interface Deadline {
  /** When the session ends unless touched; undefined while it is not Ready. */
  readonly expiresAt: number | undefined;
  /** When it ends even if touched. */
  readonly lifetimeEndsAt: number | undefined;
}

/** What the deadline says about a session now. */
export type DeadlineVerdict =
  | { readonly kind: "notStarted" }
  | { readonly kind: "alive"; readonly wakeInMs: number }
  | { readonly kind: "expired"; readonly by: "deadline" | "lifetime" };

export function judgeDeadline(deadline: Deadline, now: number): DeadlineVerdict {
  const { expiresAt, lifetimeEndsAt } = deadline;
  if (lifetimeEndsAt !== undefined && now >= lifetimeEndsAt) return { kind: "expired", by: "lifetime" };
  if (expiresAt === undefined) return { kind: "notStarted" };
  if (now >= expiresAt) return { kind: "expired", by: "deadline" };
  return { kind: "alive", wakeInMs: Math.min(expiresAt, lifetimeEndsAt ?? expiresAt) - now };
}

/** The deadlines of a boot that became Ready at `now`. */
export function startDeadline(
  session: { ttlMs: number; maxLifetimeMs: number },
  now: number,
): { expiresAt: number; lifetimeEndsAt: number } {
  const lifetimeEndsAt = now + session.maxLifetimeMs;
  return { expiresAt: Math.min(now + session.ttlMs, lifetimeEndsAt), lifetimeEndsAt };
}

/**
 * The deadlines of a Ready session that has lost one or both of them (`status` was edited by hand, or restored): what is lost
 * begins anew, what is there stands, and nothing ends earlier than it was to. Undefined: nothing is lost.
 */
export function mendDeadline(
  { expiresAt, lifetimeEndsAt }: Deadline,
  session: { ttlMs: number; maxLifetimeMs: number },
  now: number,
): { expiresAt: number; lifetimeEndsAt: number } | undefined {
  if (expiresAt !== undefined && lifetimeEndsAt !== undefined) return undefined;
  const anew = startDeadline(session, now);
  const end = lifetimeEndsAt ?? Math.max(anew.lifetimeEndsAt, expiresAt ?? 0);
  return { expiresAt: expiresAt ?? Math.min(now + session.ttlMs, end), lifetimeEndsAt: end };
}

/** Time to live and longest life of a session: the Sandbox's wish, else the World's, else the defaults of DESIGN §3. */
export function sessionDurations(
  sandbox: { ttlSeconds?: number | undefined; maxLifetimeSeconds?: number | undefined },
  world: { ttlSeconds?: number | undefined; maxLifetimeSeconds?: number | undefined } | undefined,
): { ttlMs: number; maxLifetimeMs: number } {
  const maxLifetimeMs = (sandbox.maxLifetimeSeconds ?? world?.maxLifetimeSeconds ?? 14_400) * 1000;
  const ttlMs = (sandbox.ttlSeconds ?? world?.ttlSeconds ?? 900) * 1000;
  return { ttlMs: Math.min(ttlMs, maxLifetimeMs), maxLifetimeMs };
}

/** The longest pause between two attempts to publish. */
export const LONGEST_BACKOFF_MS = 300_000;

/** Back-off of a failing snapshot, kept in status so that it survives a restart: 2 s doubling to 5 min. */
export function snapshotBackoffMs(attempts: number): number {
  return Math.min(2_000 * 2 ** Math.max(0, attempts - 1), LONGEST_BACKOFF_MS);
}

/** A clock that jumps ahead must not end the attempts of an ending before there were any. */
const LEAST_ATTEMPTS = 3;

/** An ending that has failed for long enough passes its work on: the stopped container is kept, and its World tries again. */
export function isToBeRescued(
  operation: Pick<SandboxOperation, "verb" | "since" | "attempts">,
  now: number,
  rescueAfterMs: number,
): boolean {
  if (operation.verb === "Snapshot" || operation.attempts < LEAST_ATTEMPTS) return false;
  return now - Date.parse(operation.since) >= rescueAfterMs;
}
