import { setTimeout as sleep } from "node:timers/promises";
import { type Hit, hitOf } from "./fault-rules.ts";

/** What the relay is to do next with the body of an answer. */
export type BodyStep =
  /** Send these bytes. */
  | { kind: "send"; bytes: Buffer }
  /** Reset the connection; nothing follows. */
  | { kind: "reset" }
  /** Send nothing more, and keep the socket open; nothing follows. */
  | { kind: "stall" };

type Bytes = AsyncIterable<Buffer> | Iterable<Buffer>;

/** The body of an answer as its faults change it: first repeated, then made stale, then cut off, then split. */
export async function* faultyBody(body: Bytes, hits: readonly Hit[], signal: AbortSignal): AsyncGenerator<BodyStep> {
  const duplicate = hitOf(hits, "duplicate-lines");
  const repeated = duplicate === undefined ? body : duplicateLines(body, duplicate.apply);
  const stale = hitOf(hits, "stale-lines");
  const told = stale === undefined ? repeated : staleLines(repeated, stale.apply);
  yield* splitUp(cutOff(told, hits), hits, signal);
}

/** Repeats each line when it is complete; a last line without its end is sent once. */
async function* duplicateLines(body: Bytes, apply: () => void): AsyncGenerator<Buffer> {
  for await (const { line, isWhole } of lines(body)) {
    if (isWhole) apply();
    yield isWhole ? Buffer.concat([line, line]) : line;
  }
}

/** After each line comes the one before it once more. */
async function* staleLines(body: Bytes, apply: () => void): AsyncGenerator<Buffer> {
  let before: Buffer | undefined;
  for await (const { line, isWhole } of lines(body)) {
    if (isWhole && before !== undefined) apply();
    yield isWhole && before !== undefined ? Buffer.concat([line, before]) : line;
    before = line;
  }
}

async function* lines(body: Bytes): AsyncGenerator<{ line: Buffer; isWhole: boolean }> {
  let rest: Buffer = Buffer.alloc(0);
  for await (const chunk of body) {
    rest = Buffer.concat([rest, chunk]);
    for (let end = rest.indexOf(0x0a); end >= 0; end = rest.indexOf(0x0a)) {
      const line = rest.subarray(0, end + 1);
      rest = rest.subarray(end + 1);
      yield { line, isWhole: true };
    }
  }
  if (rest.length > 0) yield { line: rest, isWhole: false };
}

async function* cutOff(body: Bytes, hits: readonly Hit[]): AsyncGenerator<BodyStep> {
  const cut = firstCut(hits);
  let left = cut?.afterBytes ?? Number.POSITIVE_INFINITY;
  for await (const chunk of body) {
    const bytes = chunk.subarray(0, Math.min(left, chunk.length));
    if (bytes.length > 0) yield { kind: "send", bytes };
    left -= bytes.length;
    if (cut !== undefined && left === 0) {
      cut.apply();
      yield { kind: cut.kind };
      return;
    }
  }
}

interface Cut {
  kind: "reset" | "stall";
  afterBytes: number;
  apply(): void;
}

/** Of a reset and a stall the one that comes first. */
function firstCut(hits: readonly Hit[]): Cut | undefined {
  const cuts = hits.flatMap(({ fault, apply }): Cut[] => {
    if (fault.kind === "half-open") return [{ kind: "stall", afterBytes: fault.afterBytes, apply }];
    if (fault.kind === "reset" && "afterBytes" in fault)
      return [{ kind: "reset", afterBytes: fault.afterBytes, apply }];
    return [];
  });
  return cuts.toSorted((a, b) => a.afterBytes - b.afterBytes)[0];
}

async function* splitUp(
  steps: AsyncIterable<BodyStep>,
  hits: readonly Hit[],
  signal: AbortSignal,
): AsyncGenerator<BodyStep> {
  const split = hitOf(hits, "split");
  if (split === undefined) {
    yield* steps;
    return;
  }
  const { sizes, pauseMs = 1 } = split.fault;
  let turn = 0;
  for await (const step of steps) {
    if (step.kind !== "send") {
      yield step;
      continue;
    }
    for (let rest = step.bytes; rest.length > 0; turn += 1) {
      const size = sizes[turn % sizes.length] ?? rest.length;
      if (size < rest.length) split.apply();
      yield { kind: "send", bytes: rest.subarray(0, size) };
      rest = rest.subarray(size);
      // Two writes without a pause may reach the reader as one piece.
      await sleep(pauseMs, undefined, { signal });
    }
  }
}
