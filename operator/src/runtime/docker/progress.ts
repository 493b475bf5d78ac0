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
 * Reads a progress stream of pull, push or import to its end and returns the last status. The HTTP status of these
 * calls is 200 whatever happens: a line with `error` is the failure (`EngineRefused`).
 */
export async function followProgress(source: AsyncIterable<Uint8Array>): Promise<string | undefined> {
  const decoder = new StringDecoder("utf8");
  let rest = "";
  let last: string | undefined;
  const read = (line: string) => {
    if (line.trim() !== "") last = parseLine(line) ?? last;
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
