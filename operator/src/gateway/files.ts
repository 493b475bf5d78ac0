import { isoTime, openForWork, openSession, touchAfterWork, whileAlive } from "./activity.ts";
import { requestBytes } from "./body.ts";
import { type Answer, type Call, driverOf, json, onlyParameters, type Parts } from "./call.ts";
import { badRequest } from "./failure.ts";
import { type Query, singleValue } from "./request-target.ts";
import { stallGuard, watched } from "./stall-guard.ts";

/** Linux's PATH_MAX, its terminating NUL aside. */
const MAX_PATH_BYTES = 4_095;

/** GET files?path=: the bytes of a regular file, streamed. Reading extends no deadline. */
export async function readFile(call: Call, parts: Parts): Promise<Answer> {
  onlyParameters(call.query, ["path"]);
  const path = pathOf(call.query);
  const session = await openSession(call, parts);
  using untilAnswered = new DisposableStack();
  const stall = untilAnswered.use(stallGuard(parts.limits.stallMs));
  const signal = AbortSignal.any([call.signal, stall.signal]);
  const driver = await driverOf(parts, session.compute, signal);
  const file = await driver.readFile(session.compute.id, path, signal);
  // From here on the stream ends it.
  untilAnswered.move();
  return { kind: "file", size: file.size, content: watched(file.content, stall) };
}

/** PUT files?path=[&mode=]: replaces the file atomically with the request's body, streamed. */
export async function writeFile(call: Call, parts: Parts): Promise<Answer> {
  onlyParameters(call.query, ["path", "mode"]);
  const path = pathOf(call.query);
  const mode = modeOf(call.query);
  const session = await openForWork(call, parts);
  using stall = stallGuard(parts.limits.stallMs);
  const signal = AbortSignal.any([call.signal, stall.signal]);
  const driver = await driverOf(parts, session.compute, signal);
  let size = 0;
  const content = watched(requestBytes(call.request, signal), stall, (bytes) => {
    size += bytes;
  });
  const write = { path, content, ...(mode === undefined ? {} : { mode }) };
  await whileAlive({ call, parts, session }, () => driver.writeFile(session.compute.id, write, signal));
  const after = await touchAfterWork(call, parts, session);
  return json(200, { size, expiresAt: after === undefined ? null : isoTime(after.expiresAt) });
}

/** The absolute path as bytes. Throws a 400 when it is missing: a hop may have dropped it over a raw `;`. */
function pathOf(query: Query): Uint8Array {
  const path = singleValue(query, "path");
  if (path === undefined || path.length === 0) {
    throw badRequest(
      "PathMissing",
      "the query parameter path is missing",
      "state ?path=/absolute/path, percent-encoded: a raw ';' makes some hops drop the parameter, and '+' means a space",
    );
  }
  if (path === "repeated") throw badRequest("BadPath", "the query parameter path is given more than once");
  if (path[0] !== 0x2f) throw badRequest("BadPath", "path must be absolute");
  if (path.includes(0)) throw badRequest("BadPath", "path must not hold NUL");
  if (path.length > MAX_PATH_BYTES) throw badRequest("BadPath", `path is longer than ${MAX_PATH_BYTES} bytes`);
  return path;
}

function modeOf(query: Query): number | undefined {
  const value = singleValue(query, "mode");
  if (value === undefined) return undefined;
  const text = value === "repeated" ? "" : Buffer.from(value).toString("latin1");
  if (!/^0?[0-7]{3,4}$/.test(text)) throw badRequest("BadMode", "mode must be octal permission bits, for example 0644");
  return Number.parseInt(text, 8);
}
