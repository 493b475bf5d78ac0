import { z } from "zod";
import { wordsOf } from "../../reconciler/words-of.ts";
import { RuntimeError } from "../errors.ts";

/** The engine answered, and said no. `message` is the engine's own. */
export class EngineRefused extends Error {
  override readonly name = "EngineRefused";
  /** HTTP status; 200 when the refusal came inside a progress stream. */
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

export const isStatus = (error: unknown, ...statuses: number[]): boolean =>
  error instanceof EngineRefused && statuses.includes(error.status);

/**
 * Whether the engine itself said no, so that nothing was begun. Other failures leave that open: a gateway in between answers
 * 502 or 504 for a call that went through.
 */
export const isRefusal = (error: unknown): boolean =>
  error instanceof EngineRefused && error.status >= 400 && error.status < 500;

/** Turns a refusal with one of these statuses into success; everything else is thrown on. */
export const tolerate =
  (...statuses: number[]) =>
  (error: unknown): undefined => {
    if (isStatus(error, ...statuses)) return undefined;
    throw error;
  };

/** The engine did not answer, not in time, or not in its protocol: nothing is known about the effect. */
export const hostUnreachable = (what: string, cause: unknown): RuntimeError =>
  new RuntimeError("HostUnreachable", `${what}: ${wordsOf(cause)}`, { cause });

const engineMessage = z.object({ message: z.string() });

/** The engine's own sentence of an error answer. */
export function readMessage(body: string): string | undefined {
  try {
    return engineMessage.safeParse(JSON.parse(body)).data?.message;
  } catch {
    // Proxies answer with HTML.
    return undefined;
  }
}

/** Gives an engine's refusal its code; with `id`, a 404 means that container. Other errors are thrown on. */
export async function refusedAs<T>(code: "HostRefused" | "CommitFailed", promise: Promise<T>, id?: string): Promise<T> {
  try {
    return await promise;
  } catch (error) {
    if (id !== undefined && isStatus(error, 404)) throw containerNotFound(id);
    throw error instanceof EngineRefused ? new RuntimeError(code, error.message, { cause: error }) : error;
  }
}

export const containerNotFound = (id: string): RuntimeError =>
  new RuntimeError("ComputeNotFound", `container ${id} does not exist`);
