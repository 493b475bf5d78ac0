/** Proof that nothing is left of a Sandbox: every host of every Runtime is asked which containers it has. */
import type { ComputeSearch } from "../runtime/search.ts";
import type { ComputeOf } from "../world/scope.ts";

export function createComputeOf(search: Pick<ComputeSearch, "containers">): ComputeOf {
  return async (sandboxUid, signal) => {
    const { found, silent } = await search.containers({ sandboxUid }, signal);
    if (found.length > 0) return "some";
    return silent.length > 0 ? "unknown" : "none";
  };
}
