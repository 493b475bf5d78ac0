import type { Dispatcher } from "undici";
import { ApiError, ConnectionError, type StatusBody } from "./errors.ts";

type Headers = Dispatcher.ResponseData["headers"];

/**
 * Reads a whole answer: JSON parsed, anything else as text. Errors: `ConnectionError` when it exceeds `maxBytes` or is not the
 * JSON it says it is; those of the stream.
 */
export async function readAnswer(response: Dispatcher.ResponseData, maxBytes: number): Promise<unknown> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body) {
    size += chunk.length;
    if (size > maxBytes) {
      // The rest is not wanted; destroying the body closes its connection.
      response.body.destroy();
      throw new ConnectionError(`the answer exceeds ${maxBytes} bytes`, { outcomeUnknown: true });
    }
    chunks.push(chunk);
  }
  const text = Buffer.concat(chunks).toString("utf8");
  if (!String(response.headers["content-type"] ?? "").includes("json")) return text;
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new ConnectionError("the answer is not valid JSON", { outcomeUnknown: true, cause });
  }
}

/** The error for an answer that is no success. The message is the server's own sentence, cut to 1 KiB. */
export function toApiError(status: number, headers: Headers, answer: unknown): ApiError {
  const body = readStatus(answer);
  const sentence =
    body.message ?? (typeof answer === "string" && answer.trim() !== "" ? answer.trim() : `HTTP ${status}`);
  return new ApiError({
    status,
    reason: body.reason ?? "",
    message: sentence.slice(0, 1_024),
    retryAfterMs: retryAfterOf(headers, body),
  });
}

/** The fields of a `metav1.Status` that are used; empty for anything else. */
export function readStatus(answer: unknown): StatusBody {
  if (!isRecord(answer)) return {};
  const { reason, message, code, details } = answer;
  const retryAfterSeconds = isRecord(details) ? details["retryAfterSeconds"] : undefined;
  return {
    ...(typeof reason === "string" ? { reason } : {}),
    ...(typeof message === "string" ? { message } : {}),
    ...(typeof code === "number" ? { code } : {}),
    ...(typeof retryAfterSeconds === "number" ? { details: { retryAfterSeconds } } : {}),
  };
}

/** `Retry-After` in seconds (kube-apiserver never sends a date), else the Status's own field; in milliseconds. */
function retryAfterOf(headers: Headers, body: StatusBody): number | undefined {
  const header = headers["retry-after"];
  const seconds = typeof header === "string" && /^\d+$/.test(header) ? Number(header) : body.details?.retryAfterSeconds;
  return seconds === undefined ? undefined : seconds * 1_000;
}

/** True for a JSON object. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
