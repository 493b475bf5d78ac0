/** A snapshot that is asked for by annotation (DESIGN §6): what becomes of it, from what is written alone. */
import {
  appendRequest,
  clip,
  LIMITS,
  REQUEST_ID,
  REQUEST_ID_RULE,
  type Sandbox,
  type SandboxRequest,
  SNAPSHOT_REQUESTED,
  SNAPSHOT_REQUESTED_BY,
} from "@agentworlds/crds";
import { type SessionState, sessionState } from "../runtime/session-state.ts";
import { UNKNOWN_CREATOR } from "../world/creator.ts";

export type AnnotatedSnapshot =
  /** No annotation, or one that was taken up before. */
  | { readonly kind: "None" }
  /** The session does not run yet, or every place is taken by a request that nobody has answered. */
  | { readonly kind: "Later" }
  /** It is put to the session like a verb; `requests` is absent when the same was asked for by verb already. */
  | { readonly kind: "TakenUp"; readonly id: string; readonly requests?: readonly SandboxRequest[] }
  /** By rule: the same annotation would be refused again. `requests` has the refusal, where the id can have an answer. */
  | {
      readonly kind: "Refused";
      readonly id: string;
      readonly because: string;
      readonly requests?: readonly SandboxRequest[];
    };

/** `at`: ISO time of now. */
export function judgeAnnotatedSnapshot(sandbox: Sandbox, at: string): AnnotatedSnapshot {
  const value = sandbox.metadata.annotations?.[SNAPSHOT_REQUESTED];
  if (value === undefined) return { kind: "None" };
  // What is no id is remembered too, as far as it can be written down: it is refused once.
  const id = value === "" ? "(empty)" : clip(value, LONGEST_ID);
  const { snapshotsRequested = [], requests = [] } = sandbox.status ?? {};
  if (snapshotsRequested.includes(id)) return { kind: "None" };
  if (!REQUEST_ID.test(value)) return { kind: "Refused", id, because: `it is no id of ${REQUEST_ID_RULE}` };
  const wish: SandboxRequest = { id, verb: "Snapshot", user: askerOf(sandbox), at };
  const appended = appendRequest(requests, wish);
  switch (appended.kind) {
    case "known":
      return { kind: "TakenUp", id };
    case "conflict":
      return { kind: "Refused", id, because: `the id was used for a ${appended.request.verb.toLowerCase()}` };
    case "full":
      return { kind: "Later" };
    case "append":
      return inItsState(sandbox, wish, appended.requests);
  }
}

const LONGEST_ID = 64;

/** As the verb: only a session that runs can be snapshotted. One that is on its way to that is waited for. */
function inItsState(sandbox: Sandbox, wish: SandboxRequest, requests: readonly SandboxRequest[]): AnnotatedSnapshot {
  const { id, at } = wish;
  const { kind } = sessionState(sandbox);
  if (kind === "Running") return { kind: "TakenUp", id, requests };
  if (kind === "Starting" || kind === "ForeignCompute") return { kind: "Later" };
  const because = OVER[kind];
  const result = { outcome: "Refused", code: kind, message: because, at } as const;
  return { kind: "Refused", id, because, requests: [...requests.slice(0, -1), { ...wish, result }] };
}

const OVER: Readonly<Record<Exclude<SessionState["kind"], "Running" | "Starting" | "ForeignCompute">, string>> = {
  Hibernating: "the session is hibernating, which makes a version by itself",
  Hibernated: "the session is hibernated: its work is in its last version",
  Closing: "the session is being closed",
  Closed: "the session is closed",
};

/** Stamped by the API server (1.36 and newer) or stated, and true in either case; else nobody knows. */
const askerOf = ({ metadata }: Sandbox): string =>
  clip(metadata.annotations?.[SNAPSHOT_REQUESTED_BY] || UNKNOWN_CREATOR.user, LIMITS.user);

/** With one more id; the oldest make room. */
export const remembering = ({ status }: Sandbox, id: string): string[] =>
  [...(status?.snapshotsRequested ?? []), id].slice(-LIMITS.annotated);
