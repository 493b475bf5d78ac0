import * as z from "zod";
import { LONGEST_TIMER_MS } from "../reconciler/clock.ts";
import { commandHeader } from "../runtime/command-header.ts";
import type { ExecRequest } from "../runtime/contract.ts";
import { sessionEnvironment } from "../runtime/session-environment.ts";
import { isoTime, openForWork, touchAfterWork, whileAlive } from "./activity.ts";
import { readJson } from "./body.ts";
import { type Answer, type Call, driverOf, json, onlyParameters, type Parts } from "./call.ts";
import { checkProxiedTimeout, execTimeoutMs } from "./exec-timeout.ts";

/** The driver ends the command at its timeout; a driver that does not is given up on after this much more. */
const GRACE_MS = 15_000;

const noNul = (max: number) =>
  z
    .string()
    .max(max)
    .refine((text) => !text.includes("\0"), "must not hold NUL");

const bodySchema = z.strictObject({
  command: z.array(noNul(131_072)).min(1).max(4_096),
  env: z.record(z.string().regex(/^[^=\0]{1,256}$/, "must be a variable name"), noNul(131_072)).optional(),
  workingDir: noNul(4_096).optional(),
  user: noNul(256).optional(),
  stdin: z.base64().optional(),
  timeoutSeconds: z.number().positive().max(2_592_000).optional(),
});

type ExecBody = z.infer<typeof bodySchema>;

/** POST exec: one command, its whole output in the answer. */
export async function exec(call: Call, parts: Parts): Promise<Answer> {
  onlyParameters(call.query, []);
  const body = await readJson(call.request, bodySchema, {
    maxBytes: parts.limits.execBodyBytes,
    signal: call.signal,
  });
  // Before the session is touched for it; with the session's environment the driver looks again.
  commandHeader(requestOf(body, { timeoutMs: 0, env: body.env ?? {} }));
  const stated = {
    statedSeconds: body.timeoutSeconds,
    proxiedLimitSeconds: call.identity.via === "Proxied" ? parts.limits.proxiedExecSeconds : undefined,
  };
  checkProxiedTimeout(stated);
  const session = await openForWork(call, parts);
  const timeoutMs = execTimeoutMs({ ...stated, lifetimeEndsAt: session.lifetimeEndsAt, now: parts.clock.now() });
  const environment = await sessionEnvironment(session.sandbox, parts.secrets, call.signal);
  const stdin = body.stdin === undefined ? {} : { stdin: Buffer.from(body.stdin, "base64") };
  const request = { ...requestOf(body, { timeoutMs, env: { ...environment, ...body.env } }), ...stdin };
  const record = await whileAlive({ call, parts, session }, async () => {
    const deadline = AbortSignal.timeout(Math.min(timeoutMs + GRACE_MS, LONGEST_TIMER_MS));
    const signal = AbortSignal.any([call.signal, deadline]);
    const driver = await driverOf(parts, session.compute, signal);
    return await driver.exec(session.compute.id, request, signal);
  });
  const after = await touchAfterWork(call, parts, session);
  return json(200, {
    exitCode: record.exitCode,
    signal: record.signal,
    stdout: base64(record.stdout),
    stderr: base64(record.stderr),
    timedOut: record.timedOut,
    durationMs: record.durationMs,
    // Null: the session ended while the command ran.
    expiresAt: after === undefined ? null : isoTime(after.expiresAt),
  });
}

/** The command without its stdin. */
function requestOf(body: ExecBody, { timeoutMs, env }: { timeoutMs: number; env: Record<string, string> }) {
  return {
    command: body.command,
    timeoutMs,
    env,
    ...(body.workingDir === undefined ? {} : { workingDir: body.workingDir }),
    ...(body.user === undefined ? {} : { user: body.user }),
  } satisfies ExecRequest;
}

const base64 = (bytes: Uint8Array): string =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");
