/**
 * A registry whose disk was full keeps what it had written of a manifest under its digest, answers 500 for it, and takes the
 * same bytes again without writing them (distribution 3.0.0). No retry of the same bytes can mend that; other bytes do.
 */
import type { RegistryClient } from "../registry/contract.ts";
import { RegistryError } from "../registry/errors.ts";

/** Whether it is the manifest that could not be read, and not the registry that is away: `error` is what a read of it threw. */
export async function isSpoilt(
  { client, repository }: { readonly client: Pick<RegistryClient, "listTags">; readonly repository: string },
  error: unknown,
  signal: AbortSignal,
): Promise<boolean> {
  if (!(error instanceof RegistryError)) return false;
  const isOfContent = error.code === "DigestMismatch" || error.code === "Malformed" || (error.status ?? 0) >= 500;
  if (!isOfContent) return false;
  try {
    await client.listTags(repository, signal);
    return true;
  } catch (away) {
    if (away instanceof RegistryError) return false;
    throw away;
  }
}

/** A time for the bytes that are put instead; also where the clock stands still, or was set back. */
export const timeAfter = (spoilt: string, now: number): string =>
  new Date(Math.max(now, Date.parse(spoilt) + 1)).toISOString();
