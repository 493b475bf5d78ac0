/**
 * When the time of a rescue is over. It runs only while its host is known to answer: work that nobody could look into,
 * because the host was silent, gets the time that was promised for it once the host is back.
 */
import type { Runtime, RuntimeHostStatus, RuntimeRescue } from "@agentworlds/crds";

/** What a Runtime that states nothing, or is gone, keeps: `rescueSeconds` has this default. */
export const DEFAULT_RESCUE_SECONDS = 86_400;

type Kept = Pick<RuntimeRescue, "operation" | "host" | "since" | "expiresAt">;

/** Epoch milliseconds, as far as is known at `now`. The Runtime's own record outweighs a copy of it. */
export function rescueEndsAt(rescue: Kept, runtime: Runtime | undefined, now: number): number {
  const recorded = runtime?.status?.rescues?.find(({ operation }) => operation === rescue.operation);
  const ends = Math.max(promisedEnd(rescue, runtime), recorded ? promisedEnd(recorded, runtime) : 0);
  const host = runtime?.status?.hosts?.find(({ name }) => name === rescue.host);
  return ends + silenceOf(host, rescue, now);
}

/** The record of a rescue whose host answers again: its end moves by the silence. `host` is as it was before it answered. */
export function withoutSilence(
  rescue: RuntimeRescue,
  runtime: Runtime,
  {
    host,
    now,
  }: {
    readonly host: RuntimeHostStatus;
    readonly now: number;
  },
): RuntimeRescue {
  const silence = silenceOf(host, rescue, now);
  if (silence === 0) return rescue;
  return { ...rescue, expiresAt: new Date(promisedEnd(rescue, runtime) + silence).toISOString() };
}

/** A record of an older operator names no end. */
const promisedEnd = ({ since, expiresAt }: Kept, runtime: Runtime | undefined): number =>
  expiresAt === undefined
    ? Date.parse(since) + (runtime?.spec.rescueSeconds ?? DEFAULT_RESCUE_SECONDS) * 1000
    : Date.parse(expiresAt);

/** How long the host has been silent since the work is kept. */
function silenceOf(host: RuntimeHostStatus | undefined, { since }: Kept, now: number): number {
  if (host?.unreachableAt === undefined) return 0;
  return Math.max(0, now - Math.max(Date.parse(since), Date.parse(host.unreachableAt)));
}
