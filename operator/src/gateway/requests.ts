import { LIMITS, type SandboxRequest } from "@agentworlds/crds";

/** A wish put to the leading controller. */
export type NewRequest = Omit<SandboxRequest, "result">;

/** What becomes of `status.requests` when one is put in. */
export type Appended =
  | { readonly kind: "append"; readonly requests: readonly SandboxRequest[] }
  /** The id is known: this is a repetition, whatever its answer. */
  | { readonly kind: "known"; readonly request: SandboxRequest }
  /** The id is known for another verb. */
  | { readonly kind: "conflict"; readonly request: SandboxRequest }
  /** Every place is taken by a request nobody has answered. */
  | { readonly kind: "full" };

/** Puts a request last; when all places are taken the answered one that was asked first makes room. */
export function appendRequest(requests: readonly SandboxRequest[], wish: NewRequest): Appended {
  const known = requests.find((request) => request.id === wish.id);
  if (known !== undefined) return { kind: known.verb === wish.verb ? "known" : "conflict", request: known };
  if (requests.length < LIMITS.requests) return { kind: "append", requests: [...requests, wish] };
  const oldestAnswered = requests.filter((request) => request.result !== undefined).sort(byAge)[0];
  if (oldestAnswered === undefined) return { kind: "full" };
  return { kind: "append", requests: [...requests.filter((request) => request !== oldestAnswered), wish] };
}

const byAge = (left: SandboxRequest, right: SandboxRequest): number => Date.parse(left.at) - Date.parse(right.at);

/** A wake that nobody has answered yet and that states the same ttl serves a later one too. */
export const openWake = (
  requests: readonly SandboxRequest[],
  ttlSeconds: number | undefined,
): SandboxRequest | undefined =>
  requests.find(
    (request) =>
      request.verb === "Touch" && request.result === undefined && request.parameters?.ttlSeconds === ttlSeconds,
  );
