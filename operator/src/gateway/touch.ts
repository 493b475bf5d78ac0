/** A question about a deadline. Times are epoch milliseconds. */
export interface TouchQuestion {
  readonly now: number;
  /** How long the session shall live from now. */
  readonly ttlMs: number;
  readonly expiresAt: number;
  /** The end that no touch moves. */
  readonly lifetimeEndsAt: number;
  /** The caller stated this ttl; otherwise it is the session's own, or a side effect of activity. */
  readonly explicit: boolean;
}

/** What a touch does to `expiresAt`. */
export type TouchVerdict =
  | { readonly kind: "set"; readonly expiresAt: number }
  | { readonly kind: "unchanged" }
  | { readonly kind: "refused"; readonly lifetimeEndsAt: number; readonly longestTtlMs: number };

/** Rule 4 of the design: `max(current, now + ttl)`; a stated wish beyond the lifetime is refused, others are clamped. */
export function touchDeadline(question: TouchQuestion): TouchVerdict {
  const { now, ttlMs, expiresAt, lifetimeEndsAt } = question;
  const wish = now + ttlMs;
  if (question.explicit && wish > lifetimeEndsAt) {
    return { kind: "refused", lifetimeEndsAt, longestTtlMs: Math.max(0, lifetimeEndsAt - now) };
  }
  const target = Math.min(wish, lifetimeEndsAt);
  return target > expiresAt ? { kind: "set", expiresAt: target } : { kind: "unchanged" };
}

/** An implicit touch that moves the deadline by less is not worth a write: nobody notices a second, unless the ttl is short. */
const coalesceMs = (ttlMs: number): number => Math.min(1_000, ttlMs / 4);

/** How often work that runs touches its session: always in time, and so that each touch is worth its write. */
export const aliveEveryMs = (ttlMs: number): number => Math.min(ttlMs / 3, 60_000);

/** `lastActivityAt` is a hint for people, not a deadline. */
const ACTIVITY_STEP_MS = 10_000;

/** What a touch writes; both absent: nothing. */
export interface TouchWrite {
  readonly expiresAt?: number;
  readonly lastActivityAt?: number;
}

/** Leaves out the writes of an implicit touch that nobody would notice; a touch that was asked for is always exact. */
export function touchWrite(
  verdict: TouchVerdict,
  facts: { now: number; ttlMs: number; expiresAt: number; lastActivityAt: number | undefined; asked: boolean },
): TouchWrite {
  const moves =
    verdict.kind === "set" && (facts.asked || verdict.expiresAt - facts.expiresAt >= coalesceMs(facts.ttlMs))
      ? { expiresAt: verdict.expiresAt }
      : {};
  const stale = facts.lastActivityAt === undefined || facts.now - facts.lastActivityAt >= ACTIVITY_STEP_MS;
  return { ...moves, ...(stale ? { lastActivityAt: facts.now } : {}) };
}
