import { randomUUID } from "node:crypto";
import {
  appendRequest,
  clip,
  LIMITS,
  REQUEST_ID,
  REQUEST_ID_RULE,
  type Sandbox,
  type SandboxRequestResult,
} from "@agentworlds/crds";
import * as z from "zod";
import { sessionState } from "../runtime/session-state.ts";
import { isoTime } from "./activity.ts";
import { readJson } from "./body.ts";
import { type Answer, type Call, json, onlyParameters, type Parts } from "./call.ts";
import { Failure } from "./failure.ts";
import type { NewRequest } from "./requests.ts";
import type { SandboxWrite } from "./sandbox-store.ts";
import { closed, notRunning } from "./session.ts";
import type { Decision } from "./status-swap.ts";
import { noPlace } from "./touch-verb.ts";
import { untilAnswered } from "./until-answered.ts";

export const idSchema = z.string().regex(REQUEST_ID, `must be ${REQUEST_ID_RULE}`);
const description = z.string().max(LIMITS.description).optional();
const snapshotSchema = z.strictObject({ id: idSchema.optional(), description });
const closeSchema = z.strictObject({
  id: idSchema.optional(),
  description,
  policy: z.enum(["Snapshot", "Discard"]).optional(),
});

const BODY = 65_536;

/** POST snapshot: a version of the running session, made by the leading controller. */
export async function snapshot(call: Call, parts: Parts): Promise<Answer> {
  onlyParameters(call.query, []);
  const body = await readJson(call.request, snapshotSchema, { maxBytes: BODY, signal: call.signal });
  return ask(call, parts, {
    verb: "Snapshot",
    id: body.id ?? randomUUID(),
    parameters: body.description === undefined ? {} : { description: body.description },
  });
}

/** POST close: ends the session for good. */
export async function close(call: Call, parts: Parts): Promise<Answer> {
  onlyParameters(call.query, []);
  const body = await readJson(call.request, closeSchema, { maxBytes: BODY, signal: call.signal });
  const parameters: Wish["parameters"] = {};
  if (body.description !== undefined) parameters.description = body.description;
  if (body.policy !== undefined) parameters.discard = body.policy;
  return ask(call, parts, { verb: "Close", id: body.id ?? randomUUID(), parameters });
}

interface Wish {
  readonly verb: "Snapshot" | "Close";
  readonly id: string;
  readonly parameters: NonNullable<NewRequest["parameters"]>;
}

/** Puts the wish into status, once per id, and waits for the controller's word, or answers 202 when that takes long. */
async function ask(call: Call, parts: Parts, wish: Wish): Promise<Answer> {
  const ref = call.route.sandbox;
  const request: NewRequest = {
    id: wish.id,
    verb: wish.verb,
    ...(Object.keys(wish.parameters).length === 0 ? {} : { parameters: wish.parameters }),
    user: clip(call.identity.user, LIMITS.user),
    at: isoTime(parts.clock.now()),
  };
  const { object } = await parts.writer.update({
    ref,
    decide: (current) => decide(current, request),
    signal: call.signal,
  });
  const answer = await untilAnswered(call, {
    kind: parts.writer.kind,
    ref,
    from: object,
    clock: parts.clock,
    longPollMs: parts.limits.longPollMs,
    answerIn: (sandbox) => answerIn(sandbox, wish),
  });
  return answer ?? json(202, { id: wish.id, done: false });
}

/** A repeated id asks for nothing new, whatever the session has become in between. */
function decide(sandbox: Sandbox, request: NewRequest): Decision<SandboxWrite, void> {
  const appended = appendRequest(sandbox.status.requests ?? [], request);
  if (appended.kind === "known") return { result: undefined };
  if (appended.kind === "conflict") throw idReused(request, appended.request);
  const state = sessionState(sandbox);
  if (request.verb === "Snapshot" && state.kind !== "Running") throw notRunning(sandbox, state);
  // A close of what is closed is done; its version is in status.
  if (state.kind === "Closed") return { result: undefined };
  if (appended.kind === "full") throw noPlace(sandbox.metadata.name);
  return { write: { requests: appended.requests }, result: undefined };
}

/** The recorded outcome of the wish; `undefined` while there is none. Throws when it is not a success. */
function answerIn(sandbox: Sandbox, wish: Wish): Answer | undefined {
  const result = sandbox.status.requests?.find((request) => request.id === wish.id)?.result;
  if (result !== undefined) return done(wish, result);
  const end = sandbox.status.closed;
  if (end === undefined) return undefined;
  if (wish.verb === "Snapshot") throw closed(sandbox);
  return done(wish, { ...end, outcome: "Succeeded" });
}

function done(wish: Wish, result: SandboxRequestResult): Answer {
  if (result.outcome === "Succeeded") return json(200, { id: wish.id, done: true, ...result });
  throw new Failure({
    status: result.outcome === "Refused" ? 409 : 500,
    code: result.code ?? `${wish.verb}${result.outcome}`,
    message: result.message ?? `the ${wish.verb.toLowerCase()} was not done`,
    remediation:
      result.outcome === "Refused"
        ? "a repetition would be refused too: look at the Sandbox's conditions"
        : "look at the Sandbox's conditions, then ask again with another id",
  });
}

const idReused = (request: NewRequest, known: NewRequest): Failure =>
  new Failure({
    status: 409,
    code: "IdReused",
    message: `the id ${request.id} was used for a ${known.verb.toLowerCase()} of this Sandbox${known.verb === request.verb ? " with other parameters" : ""}`,
    remediation: "use a new id for each thing you ask for",
  });
