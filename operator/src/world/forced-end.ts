/** The last bound of a deletion, for a World as for a Sandbox: twice the deadline in which it should end in order. */
import { skipsFinalizer, type World } from "@agentworlds/crds";

/** Why the finalizer goes now, whatever is left; undefined while it stays, and where nothing is being deleted. */
export function whyForced(
  metadata: World["metadata"],
  { now, deletionDeadlineMs }: { readonly now: number; readonly deletionDeadlineMs: number },
): string | undefined {
  if (metadata.deletionTimestamp === undefined) return undefined;
  if (skipsFinalizer(metadata)) return "an annotation skips the finalizer";
  const waitedMs = now - Date.parse(metadata.deletionTimestamp);
  const isOver = waitedMs >= 2 * deletionDeadlineMs;
  return isOver ? `the deletion did not come to an end within ${Math.floor(waitedMs / 1000)} s` : undefined;
}
