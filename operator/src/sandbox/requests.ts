/** Answers to what gateways recorded in `status.requests[]`. */
import type { Sandbox, SandboxRequest, SandboxRequestResult } from "@agentworlds/crds";

/** The whole list with a result on the given requests that have none yet. Undefined stays undefined. */
export function answer(
  sandbox: Sandbox,
  requests: readonly Pick<SandboxRequest, "id">[],
  result: SandboxRequestResult,
): SandboxRequest[] {
  const ids = new Set(requests.map((request) => request.id));
  return (sandbox.status?.requests ?? []).map((request) =>
    ids.has(request.id) && request.result === undefined ? { ...request, result } : request,
  );
}
