/**
 * A boot does not wait for ever: it holds its World and a slot meanwhile. One that is not Ready by `compute.bootDeadlineAt` is
 * given up, with nothing lost, since nothing was ever run in its container, and tried again after a pause. Pure decisions.
 */
import { clip, LIMITS, type SandboxCompute, type SandboxEnding, type SandboxStatus } from "@agentworlds/crds";
import { findCondition } from "../reconciler/conditions.ts";

/** Reason of the ending, and of the wait for the next try. */
export const BOOT_TIMED_OUT = "BootTimedOut";

/** Fields of the compute that is recorded at a boot. */
export function bootLimit(
  { lastEnding }: Pick<SandboxStatus, "lastEnding">,
  now: number,
  bootDeadlineMs: number,
): Pick<SandboxCompute, "bootDeadlineAt" | "failedBoots"> {
  const failedBoots = lastEnding?.failedBoots ?? 0;
  return { bootDeadlineAt: iso(now + bootDeadlineMs), ...(failedBoots === 0 ? {} : { failedBoots }) };
}

/** Milliseconds that the boot has left; undefined where it has no limit: none is recorded, or it was Ready. */
export function bootMsLeft({ compute, expiresAt }: Partial<SandboxStatus>, now: number): number | undefined {
  if (!compute?.bootDeadlineAt || compute.provisionedAt !== undefined || expiresAt !== undefined) return undefined;
  return Date.parse(compute.bootDeadlineAt) - now;
}

export const isBootOverdue = (status: Partial<SandboxStatus>, now: number): boolean =>
  (bootMsLeft(status, now) ?? 1) <= 0;

const FIRST_PAUSE_MS = 60_000;
const LONGEST_PAUSE_MS = 3_600_000;

/** The World and the slot are free meanwhile. */
export const pauseMs = (failedBoots: number): number =>
  Math.min(FIRST_PAUSE_MS * 2 ** Math.max(0, failedBoots - 1), LONGEST_PAUSE_MS);

/** Fields of the ending of a boot that was given up. */
export function failedBoot(
  { compute }: Partial<SandboxStatus>,
  now: number,
): Pick<SandboxEnding, "reason" | "failedBoots" | "retryAt"> {
  const failedBoots = (compute?.failedBoots ?? 0) + 1;
  return { reason: BOOT_TIMED_OUT, failedBoots, retryAt: iso(now + pauseMs(failedBoots)) };
}

/** No boot was Ready yet, so `spec.world.version` still decides. */
export const isFirstBoot = ({ boot = 0, lastEnding }: Partial<SandboxStatus>): boolean =>
  boot === (lastEnding?.failedBoots ?? 0);

/** The same of the boot that is recorded. */
export const wasFirstBoot = ({ boot, failedBoots = 0 }: SandboxCompute): boolean => boot === failedBoots + 1;

/** What kept the boot from being Ready, as the conditions have it before they speak of the end. */
export function whyNotReady({ conditions, compute }: Partial<SandboxStatus>): string {
  const ready = findCondition(conditions, "Ready");
  const why = ready ? `${ready.reason}: ${ready.message}` : "nothing is known of why";
  return clip(`boot ${compute?.boot} was not Ready by ${compute?.bootDeadlineAt}: ${why}`, LIMITS.message);
}

const iso = (epochMs: number): string => new Date(epochMs).toISOString();
