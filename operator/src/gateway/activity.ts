import type { Sandbox } from "@agentworlds/crds";
import { sessionState } from "../runtime/session-state.ts";
import type { Call, Parts } from "./call.ts";
import { Failure } from "./failure.ts";
import { pause } from "./follow-object.ts";
import type { SandboxWrite } from "./sandbox-store.ts";
import { notRunning } from "./session.ts";
import { aliveEveryMs, type TouchWrite, touchDeadline, touchWrite } from "./touch.ts";

/** A session somebody may work in now: the compute is the one recorded in the object that was read for this request. */
export interface OpenSession {
  readonly sandbox: Sandbox;
  readonly compute: NonNullable<Sandbox["status"]["compute"]>;
  readonly ttlMs: number;
  /** Epoch milliseconds, as in status now. */
  readonly expiresAt: number;
  readonly lifetimeEndsAt: number;
}

/** Reads the Sandbox and refuses unless its session is Running. Extends nothing. */
export async function openSession(call: Call, parts: Parts): Promise<OpenSession> {
  const sandbox = await parts.reader.get(call.route.sandbox, call.signal);
  const state = sessionState(sandbox);
  if (state.kind !== "Running") throw notRunning(sandbox, state);
  const ttlMs = await parts.reader.ttlMs(sandbox, call.signal);
  return { sandbox, ttlMs, ...state };
}

/** Opens the session and touches it, as work in it does. */
export async function openForWork(call: Call, parts: Parts): Promise<OpenSession> {
  const session = await openSession(call, parts);
  return implicitTouch(call, parts, { ...session, isJustRead: true });
}

/**
 * The touch at the end of some work. A session that ended in the meantime is no failure of work that is done:
 * `undefined` then.
 */
export async function touchAfterWork(call: Call, parts: Parts, session: OpenSession): Promise<OpenSession | undefined> {
  try {
    return await implicitTouch(call, parts, session);
  } catch (error) {
    if (call.signal.aborted) throw error;
    // The work is done and its answer must not be lost over a deadline, so whatever went wrong is only told.
    call.logger.info({ code: error instanceof Failure ? error.code : "TouchFailed" }, "no touch after work");
    return undefined;
  }
}

/** Does work in the session; as long as it runs the session does not expire under it (rule 4). */
export async function whileAlive<T>(
  { call, parts, session }: { call: Call; parts: Parts; session: OpenSession },
  work: () => Promise<T>,
): Promise<T> {
  const finished = new AbortController();
  const alive = keepAlive(call, parts, { ...session, until: finished.signal });
  try {
    return await work();
  } finally {
    finished.abort();
    await alive;
  }
}

/** Touches the session from time to time while work runs in it; ends with `until`. */
async function keepAlive(call: Call, parts: Parts, session: OpenSession & { until: AbortSignal }): Promise<void> {
  const { until } = session;
  const everyMs = aliveEveryMs(session.ttlMs);
  const background = { ...call, signal: AbortSignal.any([call.signal, until]) };
  for (;;) {
    await pause(parts.clock, everyMs, background.signal);
    if (background.signal.aborted) return;
    try {
      await touchAfterWork(background, parts, session);
    } catch (error) {
      if (!background.signal.aborted) throw error;
    }
  }
}

/** `isJustRead`: this same request has read the session, which saves the first read of the swap. */
async function implicitTouch(
  call: Call,
  parts: Parts,
  session: OpenSession & { readonly isJustRead?: boolean },
): Promise<OpenSession> {
  const { ttlMs } = session;
  const { result, object: sandbox } = await parts.writer.update({
    ref: call.route.sandbox,
    uid: session.sandbox.metadata.uid,
    read: session.isJustRead ? session.sandbox : undefined,
    decide: (current) => {
      const state = sessionState(current);
      if (state.kind !== "Running") throw notRunning(current, state);
      const now = parts.clock.now();
      const verdict = touchDeadline({ ...state, now, ttlMs, explicit: false });
      const write = touchWrite(verdict, {
        now,
        ttlMs,
        expiresAt: state.expiresAt,
        lastActivityAt: lastActivity(current),
        asked: false,
      });
      return { write: asStatus(write), result: { ...state, expiresAt: write.expiresAt ?? state.expiresAt } };
    },
    signal: call.signal,
  });
  return { sandbox, ttlMs, ...result };
}

export const lastActivity = (sandbox: Sandbox): number | undefined =>
  sandbox.status.lastActivityAt === undefined ? undefined : Date.parse(sandbox.status.lastActivityAt);

/** A touch's write as status fields. */
export function asStatus(write: TouchWrite): SandboxWrite {
  return {
    ...(write.expiresAt === undefined ? {} : { expiresAt: isoTime(write.expiresAt) }),
    ...(write.lastActivityAt === undefined ? {} : { lastActivityAt: isoTime(write.lastActivityAt) }),
  };
}

/** RFC 3339 in UTC, with milliseconds. */
export const isoTime = (epochMs: number): string => new Date(epochMs).toISOString();
