/** Answers to what gateways recorded in `status.requests[]`. */
import type { Sandbox, SandboxRequest, SandboxRequestResult, VersionPointer } from "@agentworlds/crds";

/** The whole list with a result on the given requests that have none yet. */
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

/** How a boot, or with `isClosed` the session, ended. */
export interface SessionEnd {
  readonly isClosed: boolean;
  /** The version that this ending made. */
  readonly published: VersionPointer | undefined;
  /** The session's last version, of this ending or an earlier one. */
  readonly last: VersionPointer | undefined;
  /** ISO time. */
  readonly at: string;
}

/** The whole list at an ending: each open request by what became of it. A wake stays open until the boot that it asks for. */
export function answerEnd(sandbox: Sandbox, end: SessionEnd): SandboxRequest[] {
  return (sandbox.status?.requests ?? []).map((request) => {
    const result = request.result ?? resultOf(request.verb, end);
    return result === undefined ? request : { ...request, result };
  });
}

function resultOf(verb: SandboxRequest["verb"], end: SessionEnd): SandboxRequestResult | undefined {
  const { isClosed, published, last, at } = end;
  switch (verb) {
    case "Snapshot":
      return published
        ? { outcome: "Succeeded", ...published, at }
        : { outcome: "Failed", code: "NothingSaved", message: "the session ended without a version", at };
    case "Close":
      return isClosed
        ? { outcome: "Succeeded", ...(last ?? { message: "nothing of this session was saved" }), at }
        : undefined;
    case "Touch":
      return isClosed ? { outcome: "Refused", code: "Closed", message: "the session was closed", at } : undefined;
  }
}

/** What the session published before, in this boot or an earlier one. */
export const lastVersion = ({ status }: Sandbox): VersionPointer | undefined =>
  status?.lastSnapshot && { version: status.lastSnapshot.version, digest: status.lastSnapshot.digest };
