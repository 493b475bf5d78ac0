import type { Readable } from "node:stream";
import { PartFailed } from "./errors.ts";
import { type PartResponse, send } from "./http.ts";

/** One call of the Engine API. */
export interface EngineCall {
  method?: string;
  /** Path and query, without the version prefix. */
  path: string;
  headers?: Record<string, string>;
  body?: string | Readable;
  signal: AbortSignal;
}

/**
 * Calls the Engine API at a DOCKER_HOST of the form `unix://…`, `tcp://…` or `http://…`.
 * Any status is an answer. @throws PartFailed for another form.
 */
export function callEngine(dockerHost: string, call: EngineCall): Promise<PartResponse> {
  const { path, ...rest } = call;
  const unix = /^unix:\/\/(.+)$/.exec(dockerHost)?.[1];
  if (unix !== undefined) return send({ ...rest, url: `http://engine${path}`, socketPath: unix });
  const tcp = /^(?:tcp|http):\/\/([^/]+)\/?$/.exec(dockerHost)?.[1];
  if (tcp !== undefined) return send({ ...rest, url: `http://${tcp}${path}` });
  return Promise.reject(new PartFailed("engine", `DOCKER_HOST ${dockerHost} is neither unix:// nor tcp://`));
}

/** Whether an engine answers there. */
export async function engineAnswers(dockerHost: string, signal: AbortSignal): Promise<boolean> {
  try {
    return (await callEngine(dockerHost, { path: "/_ping", signal })).status === 200;
  } catch (error) {
    if (error instanceof PartFailed) throw error;
    return false;
  }
}

/** The answer's text. @throws PartFailed when the engine answered with an error. */
export function expectSuccess(what: string, answer: PartResponse): string {
  if (answer.status >= 200 && answer.status < 300) return answer.text;
  throw new PartFailed("engine", `${what} answered ${answer.status}: ${answer.text.slice(0, 400)}`);
}

/**
 * Pulls, imports and pushes report errors inside a stream that began with 200.
 * @throws PartFailed with the first error in it.
 */
export function expectProgress(what: string, answer: PartResponse): string {
  const text = expectSuccess(what, answer);
  const failed = text.split("\n").find((line) => line.includes('"errorDetail"'));
  if (failed !== undefined) throw new PartFailed("engine", `${what}: ${failed.trim()}`);
  return text;
}
