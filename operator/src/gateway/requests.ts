import { LIMITS, type SandboxRequest } from "@agentworlds/crds";

/** A wish put to the leading controller. */
export type NewRequest = Omit<SandboxRequest, "result">;

/** What the requests of every kind have. */
interface Recorded {
  readonly id: string;
  readonly verb: string;
  readonly at: string;
  readonly result?: unknown;
}

/** What becomes of `status.requests` when one is put in. */
export type Appended<T extends Recorded = SandboxRequest> =
  | { readonly kind: "append"; readonly requests: readonly T[] }
  /** The id is known: this is a repetition, whatever its answer. */
  | { readonly kind: "known"; readonly request: T }
  /** The id is known for another wish. */
  | { readonly kind: "conflict"; readonly request: T }
  /** Every place is taken by a request nobody has answered. */
  | { readonly kind: "full" };

/** Puts a request last; when all places are taken the answered one that was asked first makes room. */
export function appendRequest<T extends Recorded>(
  requests: readonly T[],
  wish: T,
  isSame: (known: T, wish: T) => boolean = (known) => known.verb === wish.verb,
): Appended<T> {
  const known = requests.find((request) => request.id === wish.id);
  if (known !== undefined) return { kind: isSame(known, wish) ? "known" : "conflict", request: known };
  if (requests.length < LIMITS.requests) return { kind: "append", requests: [...requests, wish] };
  const oldestAnswered = requests.filter((request) => request.result !== undefined).sort(byAge)[0];
  if (oldestAnswered === undefined) return { kind: "full" };
  return { kind: "append", requests: [...requests.filter((request) => request !== oldestAnswered), wish] };
}

const byAge = (left: Recorded, right: Recorded): number => Date.parse(left.at) - Date.parse(right.at);

/** A wake that nobody has answered yet and that states the same ttl serves a later one too. */
export const openWake = (
  requests: readonly SandboxRequest[],
  ttlSeconds: number | undefined,
): SandboxRequest | undefined =>
  requests.find(
    (request) =>
      request.verb === "Touch" && request.result === undefined && request.parameters?.ttlSeconds === ttlSeconds,
  );
