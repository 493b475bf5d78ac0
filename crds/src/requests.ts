/** `status.requests[]`: what is put to the leading controller, by a gateway or by an annotation that it takes up itself. */
import { LIMITS } from "./object.ts";
import type { SandboxRequest } from "./sandbox.ts";

/** What a client may choose as the id of a request. */
export const REQUEST_ID = /^[A-Za-z0-9][-_.A-Za-z0-9]{0,63}$/;

/** The same for a person. */
export const REQUEST_ID_RULE = "1 to 64 letters, digits, '-', '_' or '.', the first a letter or digit";

/** What the requests of every kind have. */
interface Recorded {
  readonly id: string;
  readonly verb: string;
  readonly parameters?: object;
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
export function appendRequest<T extends Recorded>(requests: readonly T[], wish: T): Appended<T> {
  const known = requests.find((request) => request.id === wish.id);
  if (known !== undefined) return { kind: wishOf(known) === wishOf(wish) ? "known" : "conflict", request: known };
  if (requests.length < LIMITS.requests) return { kind: "append", requests: [...requests, wish] };
  const oldestAnswered = requests.filter((request) => request.result !== undefined).sort(byAge)[0];
  if (oldestAnswered === undefined) return { kind: "full" };
  return { kind: "append", requests: [...requests.filter((request) => request !== oldestAnswered), wish] };
}

/** What is asked for, the same text for the same thing in whatever order it is written. */
const wishOf = ({ verb, parameters }: Recorded): string =>
  JSON.stringify([verb, Object.entries(parameters ?? {}).sort(([left], [right]) => (left < right ? -1 : 1))]);

const byAge = (left: Recorded, right: Recorded): number => Date.parse(left.at) - Date.parse(right.at);
