/**
 * A boot does not wait for ever: it holds its World and a slot meanwhile. One that is not Ready by `compute.bootDeadlineAt` is
 * given up, with nothing lost, since nothing was ever run in its container, and tried again after a pause. Pure decisions.
 */
import { clip, LIMITS, type SandboxEnding, type SandboxStatus } from "@agentworlds/crds";
import { findCondition } from "../reconciler/conditions.ts";
import { Terminal, Waiting } from "../reconciler/policy.ts";

/** Reason of the ending, and of the wait for the next try. */
export const BOOT_TIMED_OUT = "BootTimedOut";

/** Field of the compute that is recorded at a boot. */
export const bootLimit = (now: number, bootDeadlineMs: number) => ({ bootDeadlineAt: iso(now + bootDeadlineMs) });

/** Milliseconds that the boot has left; undefined where it has no limit: none is recorded, or it was Ready. */
export function bootMsLeft({ compute, expiresAt }: Partial<SandboxStatus>, now: number): number | undefined {
  if (!compute?.bootDeadlineAt || compute.provisionedAt !== undefined || expiresAt !== undefined) return undefined;
  return Date.parse(compute.bootDeadlineAt) - now;
}

export const isBootOverdue = (status: Partial<SandboxStatus>, now: number): boolean =>
  (bootMsLeft(status, now) ?? 1) <= 0;

/** How often it is looked again at what only a change of the object is known to mend. */
const STALLED_MS = 60_000;

/**
 * What a boot that has `msLeft` throws: while it holds its World and its slot nothing rests until somebody changes the object,
 * and nothing sleeps past the limit.
 */
export function withinLimit(failure: unknown, msLeft: number): unknown {
  if (!(failure instanceof Terminal) && !(failure instanceof Waiting)) return failure;
  const { reason, message, remediation } = failure;
  const wishMs = failure instanceof Waiting ? failure.afterMs : STALLED_MS;
  return new Waiting(reason, {
    message,
    ...(remediation === undefined ? {} : { remediation }),
    afterMs: Math.max(0, Math.min(wishMs, msLeft)),
    ...(failure instanceof Waiting ? { tells: failure.tells } : {}),
    cause: failure.cause,
  });
}

const FIRST_PAUSE_MS = 60_000;
const LONGEST_PAUSE_MS = 3_600_000;

/** The World and the slot are free meanwhile. */
export const pauseMs = (failedBoots: number): number =>
  Math.min(FIRST_PAUSE_MS * 2 ** Math.max(0, failedBoots - 1), LONGEST_PAUSE_MS);

/** Fields of the ending of a boot that was given up. */
export function failedBoot(
  { failedBoots: before = 0 }: Partial<SandboxStatus>,
  now: number,
): Pick<SandboxEnding, "reason" | "failedBoots" | "retryAt"> {
  const failedBoots = before + 1;
  return { reason: BOOT_TIMED_OUT, failedBoots, retryAt: iso(now + pauseMs(failedBoots)) };
}

/** A boot that has been Ready has a clock. */
const hasBeenReady = ({ compute, expiresAt, lifetimeEndsAt }: Partial<SandboxStatus>): boolean =>
  compute?.provisionedAt !== undefined || expiresAt !== undefined || lifetimeEndsAt !== undefined;

/** What `failedBoots` becomes as the boot ends, whatever ends it. It stands beside the compute, which can be lost. */
export const failedBootsAfter = (status: Partial<SandboxStatus>): number | null =>
  hasBeenReady(status) ? null : (status.failedBoots ?? 0) + 1;

/** As `isFirstBoot`, of the boot that is recorded. */
export const wasFirstBoot = ({ compute, failedBoots = 0 }: Partial<SandboxStatus>): boolean =>
  compute?.boot === failedBoots + 1;

/** What kept the boot from being Ready, as the conditions have it before they speak of the end. */
export function whyNotReady({ conditions, compute }: Partial<SandboxStatus>): string {
  const ready = findCondition(conditions, "Ready");
  const why = ready ? `${ready.reason}: ${ready.message}` : "nothing is known of why";
  return clip(`boot ${compute?.boot} was not Ready by ${compute?.bootDeadlineAt}: ${why}`, LIMITS.message);
}

const iso = (epochMs: number): string => new Date(epochMs).toISOString();
