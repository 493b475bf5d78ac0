/** How long a command may run: what the caller stated, within what its way and its session allow. */
import { isoTime } from "./activity.ts";
import { badRequest } from "./failure.ts";

const DEFAULT_TIMEOUT_SECONDS = 60;

/** What decides. Times in milliseconds since the epoch. */
export interface TimeoutFacts {
  readonly statedSeconds: number | undefined;
  /** Through kube-apiserver, which cuts a request after 60 s; undefined at the gateway's own endpoint. */
  readonly proxiedLimitSeconds: number | undefined;
  readonly lifetimeEndsAt: number;
  readonly now: number;
}

/** Refuses a timeout that no answer could survive, before anything is looked up. */
export function checkProxiedTimeout({
  statedSeconds: stated,
  proxiedLimitSeconds: limit,
}: Pick<TimeoutFacts, "statedSeconds" | "proxiedLimitSeconds">): void {
  if (limit === undefined || stated === undefined || stated <= limit) return;
  throw badRequest(
    "TimeoutTooLong",
    `timeoutSeconds is ${stated}, but kube-apiserver cuts a request after 60 s: at most ${limit} through it`,
    `state at most ${limit}, run the command in the background, or call the gateway's own endpoint`,
  );
}

/**
 * Whole milliseconds: a timer takes no others. A command outlives no session: a stated timeout beyond the lifetime is
 * refused, the default one shortened.
 */
export function execTimeoutMs(facts: TimeoutFacts): number {
  const { statedSeconds, proxiedLimitSeconds = DEFAULT_TIMEOUT_SECONDS, lifetimeEndsAt, now } = facts;
  const wishMs = Math.ceil((statedSeconds ?? Math.min(DEFAULT_TIMEOUT_SECONDS, proxiedLimitSeconds)) * 1_000);
  const leftMs = Math.max(1_000, Math.floor(lifetimeEndsAt - now));
  if (wishMs <= leftMs) return wishMs;
  if (statedSeconds === undefined) return leftMs;
  throw badRequest(
    "BeyondLifetime",
    `timeoutSeconds reaches beyond the session's lifetime, which ends at ${isoTime(lifetimeEndsAt)}`,
    `state at most ${Math.floor(leftMs / 1_000)}`,
  );
}
