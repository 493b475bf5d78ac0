import type { SandboxRequest } from "@agentworlds/crds";

/** A wish put to the leading controller. */
export type NewRequest = Omit<SandboxRequest, "result">;

/** A wake that nobody has answered yet and that states the same ttl serves a later one too. */
export const openWake = (
  requests: readonly SandboxRequest[],
  ttlSeconds: number | undefined,
): SandboxRequest | undefined =>
  requests.find(
    (request) =>
      request.verb === "Touch" && request.result === undefined && request.parameters?.ttlSeconds === ttlSeconds,
  );
