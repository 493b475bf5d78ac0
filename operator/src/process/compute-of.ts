/** Proof that nothing is left of a Sandbox: every host of every Runtime is asked which containers and captures it has. */
import type { ComputeSearch } from "../runtime/search.ts";
import type { ComputeOf } from "../world/scope.ts";

export function createComputeOf(search: ComputeSearch): ComputeOf {
  return async ({ sandboxUid, settled = new Set() }, signal) => {
    const containers = await search.containers({ sandboxUid }, signal);
    if (containers.found.length > 0) return "some";
    const captures = await search.captures({ sandboxUid }, signal);
    if (captures.found.some(({ what }) => !settled.has(what.operation))) return "some";
    return [...containers.silent, ...captures.silent].length > 0 ? "unknown" : "none";
  };
}
