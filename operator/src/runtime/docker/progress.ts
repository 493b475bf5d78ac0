import { StringDecoder } from "node:string_decoder";
import { z } from "zod";
import { RuntimeError } from "../errors.ts";
import { EngineRefused } from "./engine-errors.ts";

const progressLine = z.object({
  status: z.string().optional(),
  error: z.string().optional(),
  errorDetail: z.object({ message: z.string().optional() }).optional(),
});

/**
 * An engine sends a layer five times, with 5, 10, 15 and 20 s between, counts these down in the progress, and names the
 * cause only at the end (moby distribution/xfer/upload.go). More than 5 s left is at least the third time.
 */
const RETRY = /^Retrying in (\d+) seconds?$/;
const FIRST_RETRY_SECONDS = 5;

/** The engine is still trying to send a layer, after it failed to more than once. */
export class PushRetried extends Error {
  override readonly name = "PushRetried";
}

/** For `followProgress` of a push: no later try is waited for. Throws `PushRetried`. */
export function refuseSecondRetry(status: string): void {
  const seconds = Number(RETRY.exec(status)?.[1] ?? 0);
  if (seconds > FIRST_RETRY_SECONDS) throw new PushRetried(`the engine could not send a layer twice: ${status}`);
}

/**
 * Reads a progress stream of pull, push or import to its end and returns the last status. The HTTP status of these
 * calls is 200 whatever happens: a line with `error` is the failure (`EngineRefused`). What `judge` throws about a status
 * ends it too, and with it the engine's work: it stops when nobody reads any more.
 */
export async function followProgress(
  source: AsyncIterable<Uint8Array>,
  judge: (status: string) => void = () => undefined,
): Promise<string | undefined> {
  const decoder = new StringDecoder("utf8");
  let rest = "";
  let last: string | undefined;
  const read = (line: string) => {
    if (line.trim() === "") return;
    const status = parseLine(line);
    if (status === undefined) return;
    judge(status);
    last = status;
  };
  for await (const chunk of source) {
    const lines = (rest + decoder.write(Buffer.from(chunk))).split("\n");
    rest = lines.pop() ?? "";
    lines.forEach(read);
  }
  read(rest + decoder.end());
  return last;
}

function parseLine(line: string): string | undefined {
  const { data } = progressLine.safeParse(parseJson(line));
  if (data === undefined) throw new RuntimeError("HostUnreachable", "the engine's progress cannot be read");
  const error = data.errorDetail?.message ?? data.error;
  if (error !== undefined) throw new EngineRefused(200, error);
  return data.status;
}

function parseJson(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch (cause) {
    throw new RuntimeError("HostUnreachable", "the engine's progress was cut off", { cause });
  }
}
