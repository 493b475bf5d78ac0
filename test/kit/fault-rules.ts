/** What happens to a request that a rule hits. Bytes are counted in the body of the answer, before any framing. */
export type Fault =
  /** Forwards it only after this time. */
  | { kind: "latency"; milliseconds: number }
  /** Answers by itself; the target never sees the request. Faults of the body hit this answer, too. */
  | { kind: "respond"; status: number; headers?: Record<string, string>; body?: string }
  /** Takes the request and answers nothing, the socket staying open; the target never sees the request. */
  | { kind: "silence" }
  /** Resets the connection: before the target sees the request, or after it has answered and before a byte comes back. */
  | { kind: "reset"; at: "request" | "answer" }
  /** Resets the connection after so many bytes of the body. */
  | { kind: "reset"; afterBytes: number }
  /** Forwards so many bytes of the body and then nothing more, the socket staying open. */
  | { kind: "half-open"; afterBytes: number }
  /** Cuts the body into pieces of these sizes, again and again, each sent by itself. */
  | { kind: "split"; sizes: readonly number[]; pauseMs?: number }
  /** Sends every line of the body twice, as a watch may after a reconnect. */
  | { kind: "duplicate-lines" }
  /** Sends after every line the one before it once more: news that is old when it comes. */
  | { kind: "stale-lines" };

/** Which requests a fault hits. Everything left out matches everything. */
export interface FaultRule {
  method?: string;
  /** Tested against the raw request target, query included. */
  path?: RegExp;
  /** How many matching requests pass unharmed first; default 0. */
  skip?: number;
  /** How many are hit after that; default: all. */
  times?: number;
  fault: Fault;
}

/** A rule in force. */
export interface ActiveRule {
  /** Requests that were hit so far. */
  readonly hits: number;
  /**
   * How often the fault came true. Less than `hits` where an answer ended before its fault, e.g. had fewer bytes than
   * `afterBytes`: a test should look, or it may test nothing.
   */
  readonly applied: number;
  /** Takes the rule out of force; requests already hit stay hit. */
  remove(): void;
}

/** A fault that hit one request, and how it is counted. */
export interface Hit {
  readonly fault: Fault;
  /** To be called when the fault comes true. */
  apply(): void;
}

interface Entry {
  rule: FaultRule;
  matched: number;
  hits: number;
  applied: number;
}

/** The rules of one proxy, in the order they were added. */
export class FaultRules {
  readonly #entries = new Set<Entry>();

  /** @throws RangeError for a rule that could never do anything. */
  add(rule: FaultRule): ActiveRule {
    if (rule.fault.kind === "split" && !rule.fault.sizes.every((size) => Number.isInteger(size) && size > 0)) {
      throw new RangeError("split sizes must be positive whole numbers");
    }
    if (rule.fault.kind === "split" && rule.fault.sizes.length === 0) throw new RangeError("split without sizes");
    const entry: Entry = { rule, matched: 0, hits: 0, applied: 0 };
    this.#entries.add(entry);
    return {
      get hits() {
        return entry.hits;
      },
      get applied() {
        return entry.applied;
      },
      remove: () => void this.#entries.delete(entry),
    };
  }

  clear(): void {
    this.#entries.clear();
  }

  /** Counts the request against every rule and returns the faults that hit it. */
  hit(method: string, target: string): Hit[] {
    const hits: Hit[] = [];
    for (const entry of this.#entries) {
      const { rule } = entry;
      if (rule.method !== undefined && rule.method !== method) continue;
      // `search` and not `test`, which remembers where it was for a global expression.
      if (rule.path !== undefined && target.search(rule.path) < 0) continue;
      entry.matched += 1;
      if (entry.matched <= (rule.skip ?? 0) || entry.hits >= (rule.times ?? Number.POSITIVE_INFINITY)) continue;
      entry.hits += 1;
      hits.push({
        fault: rule.fault,
        apply: () => {
          entry.applied += 1;
        },
      });
    }
    return hits;
  }
}

/** The first fault of a kind that hit a request, with its count. */
export function hitOf<K extends Fault["kind"]>(
  hits: readonly Hit[],
  kind: K,
): { fault: Extract<Fault, { kind: K }>; apply(): void } | undefined {
  for (const hit of hits) {
    const { fault, apply } = hit;
    if (isKind(fault, kind)) return { fault, apply };
  }
  return undefined;
}

function isKind<K extends Fault["kind"]>(fault: Fault, kind: K): fault is Extract<Fault, { kind: K }> {
  return fault.kind === kind;
}
