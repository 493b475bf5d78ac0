import { randomUUID } from "node:crypto";
import { appendRequest, clip, LIMITS, type Sandbox } from "@agentworlds/crds";
import * as z from "zod";
import { sessionState } from "../runtime/session-state.ts";
import { asStatus, isoTime, lastActivity } from "./activity.ts";
import { readJson } from "./body.ts";
import { type Answer, type Call, json, onlyParameters, type Parts } from "./call.ts";
import { badRequest, Failure } from "./failure.ts";
import { type NewRequest, openWake } from "./requests.ts";
import type { SandboxWrite } from "./sandbox-store.ts";
import { modeHibernated, notRunning } from "./session.ts";
import type { Decision } from "./status-swap.ts";
import { touchDeadline, touchWrite } from "./touch.ts";

const bodySchema = z.strictObject({ ttlSeconds: z.int().min(1).max(2_592_000).optional() });

/** POST touch: extends the deadline, or wakes a hibernated session. */
export async function touch(call: Call, parts: Parts): Promise<Answer> {
  onlyParameters(call.query, []);
  const body = await readJson(call.request, bodySchema, { maxBytes: 16_384, signal: call.signal });
  const sandbox = await parts.reader.get(call.route.sandbox, call.signal);
  const ttlMs =
    body.ttlSeconds === undefined ? await parts.reader.ttlMs(sandbox, call.signal) : body.ttlSeconds * 1_000;
  const wish: Wish = {
    ttlMs,
    statedSeconds: body.ttlSeconds,
    user: clip(call.identity.user, LIMITS.user),
    id: randomUUID(),
  };
  const { result, object: touched } = await parts.writer.update({
    ref: call.route.sandbox,
    uid: sandbox.metadata.uid,
    read: sandbox,
    decide: (current) => decide(current, wish, parts.clock.now()),
    signal: call.signal,
  });
  if (result.kind === "json" && result.status === 200) parts.touches.touched(touched, call.identity);
  return result;
}

interface Wish {
  readonly ttlMs: number;
  /** `ttlSeconds` of the body; absent: the session's own. */
  readonly statedSeconds: number | undefined;
  readonly user: string;
  /** Of the wake request, should one be needed. */
  readonly id: string;
}

function decide(sandbox: Sandbox, wish: Wish, now: number): Decision<SandboxWrite, Answer> {
  const state = sessionState(sandbox);
  if (state.kind === "Closed" || state.kind === "Closing") throw notRunning(sandbox, state);
  if (sandbox.spec.mode === "Hibernated") throw modeHibernated(sandbox);
  switch (state.kind) {
    case "Running":
      return extend(sandbox, { ...state, wish, now });
    case "Starting":
      // The clock starts at Ready with the whole ttl, so there is nothing to extend; a stated ttl would be lost.
      if (wish.statedSeconds !== undefined) throw notRunning(sandbox, state);
      return { result: json(202, { waking: true }) };
    case "ForeignCompute":
      throw notRunning(sandbox, state);
    case "Hibernating":
    case "Hibernated":
      return wake(sandbox, wish, now);
  }
}

function extend(
  sandbox: Sandbox,
  facts: { expiresAt: number; lifetimeEndsAt: number; wish: Wish; now: number },
): Decision<SandboxWrite, Answer> {
  const { expiresAt, lifetimeEndsAt, wish, now } = facts;
  const verdict = touchDeadline({
    now,
    ttlMs: wish.ttlMs,
    expiresAt,
    lifetimeEndsAt,
    explicit: wish.statedSeconds !== undefined,
  });
  if (verdict.kind === "refused") {
    throw badRequest(
      "BeyondLifetime",
      `ttlSeconds reaches beyond the session's lifetime, which ends at ${isoTime(lifetimeEndsAt)}`,
      `state at most ${Math.floor(verdict.longestTtlMs / 1_000)}, or end this session and go on in a new one`,
    );
  }
  const touch = { now, ttlMs: wish.ttlMs, expiresAt, lastActivityAt: lastActivity(sandbox) };
  const write = touchWrite(verdict, { ...touch, asked: true });
  return {
    write: asStatus(write),
    result: json(200, {
      expiresAt: isoTime(write.expiresAt ?? expiresAt),
      lifetimeEndsAt: isoTime(lifetimeEndsAt),
    }),
  };
}

/** Rule 4: a touch that comes after the intent to hibernate is recorded as a wake. An equal open wake serves both. */
function wake(sandbox: Sandbox, wish: Wish, now: number): Decision<SandboxWrite, Answer> {
  const requests = sandbox.status.requests ?? [];
  const open = openWake(requests, wish.statedSeconds);
  if (open !== undefined) return { result: json(202, { waking: true, id: open.id }) };
  const request: NewRequest = {
    id: wish.id,
    verb: "Touch",
    ...(wish.statedSeconds === undefined ? {} : { parameters: { ttlSeconds: wish.statedSeconds } }),
    user: wish.user,
    at: isoTime(now),
  };
  const appended = appendRequest(requests, request);
  if (appended.kind !== "append") throw noPlace(sandbox.metadata.name);
  return { write: { requests: appended.requests }, result: json(202, { waking: true, id: wish.id }) };
}

/** Every place of `status.requests` is taken by one nobody has answered. */
export const noPlace = (name: string): Failure =>
  new Failure({
    status: 429,
    code: "TooManyRequests",
    message: `Sandbox ${name} has ${LIMITS.requests} requests that are not answered yet`,
    remediation: "wait for them; is the controller running?",
    retryAfterSeconds: 5,
  });
