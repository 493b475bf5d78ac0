import type { KubeClient, ResourceClient, ResourceType } from "../../operator/src/kube/contract.ts";
import type { KubeObject } from "../../operator/src/reconciler/list-watch.ts";
import type { RegistryClient } from "../../operator/src/registry/contract.ts";
import type { RuntimeDriver } from "../../operator/src/runtime/contract.ts";

/** A point of a run: before or after the n-th effect of a name, counted from 0. */
export interface CrashPoint {
  readonly name: string;
  readonly occurrence: number;
  readonly moment: "before" | "after";
}

/** Every point of recorded effects, in order. */
export function pointsOf(effects: readonly string[]): CrashPoint[] {
  const seen = new Map<string, number>();
  return effects.flatMap((name) => {
    const occurrence = seen.get(name) ?? 0;
    seen.set(name, occurrence + 1);
    return [
      { name, occurrence, moment: "before" },
      { name, occurrence, moment: "after" },
    ] as const;
  });
}

/**
 * The same points, in the same order, for a process that begins after a death (none: at the start): it counts its effects from
 * its own start. `effects` are those of a life without a death.
 */
export function pointsAfter(
  death: CrashPoint | undefined,
  points: readonly CrashPoint[],
  effects: readonly string[],
): CrashPoint[] {
  const begun = death === undefined ? 0 : positionIn(effects, death) + (death.moment === "after" ? 1 : 0);
  return points.map((point) => {
    const between = effects.slice(begun, positionIn(effects, point));
    return { ...point, occurrence: between.filter((name) => name === point.name).length };
  });
}

/** Index of a point's effect among all of a life; their number where the life does not have it. */
export function positionIn(effects: readonly string[], { name, occurrence }: CrashPoint): number {
  const positions = effects.flatMap((effect, position) => (effect === name ? [position] : []));
  return positions[occurrence] ?? effects.length;
}

/** Spreads points, in order, over as few lives as there can be with so many effects between two deaths of one life. */
export function livesOf(points: readonly CrashPoint[], effects: readonly string[], between: number): CrashPoint[][] {
  const lives: { readonly points: CrashPoint[]; last: number }[] = [];
  for (const point of points) {
    const position = positionIn(effects, point);
    const life = lives.find(({ last }) => position - last >= between);
    if (life === undefined) lives.push({ points: [point], last: position });
    else {
      life.points.push(point);
      life.last = position;
    }
  }
  return lives.map((life) => life.points);
}

/** Every call of a process that is dead. */
export class Crashed extends Error {
  override readonly name = "Crashed";
}

/**
 * Counts every call that changes something outside the process, and dies at the first chosen one that comes: from then on every call fails,
 * so that nothing more reaches the outside, as after SIGKILL. The clients themselves derive the points: a new effect cannot
 * lack one, because an effect is every call that is not listed as a read.
 */
export class CrashGate {
  readonly #points: readonly CrashPoint[];
  readonly #effects: string[] = [];
  readonly #died = Promise.withResolvers<CrashPoint>();
  #counting = false;
  #dead = false;

  constructor(...points: readonly CrashPoint[]) {
    this.#points = points;
  }

  /** Effects so far, by name, in order. */
  get effects(): readonly string[] {
    return this.#effects;
  }

  /** Resolves with one of the given points when the process has died there. */
  get died(): Promise<CrashPoint> {
    return this.#died.promise;
  }

  get isDead(): boolean {
    return this.#dead;
  }

  /** Effects before this are neither counted nor crashed at. */
  count(): void {
    this.#counting = true;
  }

  async effect<R>(name: string, call: () => Promise<R>): Promise<R> {
    this.#alive();
    const isCounted = this.#counting;
    const occurrence = this.#effects.filter((earlier) => earlier === name).length;
    if (isCounted) {
      this.#effects.push(name);
      this.#dieAt({ name, occurrence, moment: "before" });
    }
    const result = await call();
    this.#alive();
    if (isCounted) this.#dieAt({ name, occurrence, moment: "after" });
    return result;
  }

  async read<R>(call: () => Promise<R>): Promise<R> {
    this.#alive();
    const result = await call();
    this.#alive();
    return result;
  }

  #alive(): void {
    if (this.#dead) throw new Crashed("this process is dead");
  }

  #dieAt({ name, occurrence, moment }: CrashPoint): void {
    const point = this.#points.find(
      (each) => each.name === name && each.occurrence === occurrence && each.moment === moment,
    );
    if (point === undefined) return;
    this.#dead = true;
    this.#died.resolve(point);
    throw new Crashed(`died ${moment} ${name}`);
  }
}

/** Calls that only look; every other method is an effect. */
const READS: ReadonlySet<string> = new Set([
  "get",
  "list",
  "listCaptures",
  "watch",
  "getManifest",
  "listTags",
  "listRepositories",
  "getBlob",
  "streamBlob",
  "verifyBlob",
  "probe",
  "identity",
  "inspect",
  "ownerOf",
  "readFile",
  "exportTar",
  "close",
]);

/** Events tell, they change nothing that a later process reads: not points of their own, but a dead process writes none. */
const TOLD: ReadonlySet<string> = new Set(["events"]);

/** The lease stays with the process that ends, so that a test need not wait until it runs out; election.test.ts does. */
const BOOKKEEPING: ReadonlySet<string> = new Set(["leases"]);

export function crashingKube(kube: KubeClient, gate: CrashGate): KubeClient {
  return {
    resource<T extends KubeObject>(type: ResourceType): ResourceClient<T> {
      const client = kube.resource<T>(type);
      if (BOOKKEEPING.has(type.plural)) return client;
      return gated(client, TOLD.has(type.plural) ? { gate } : { gate, prefix: type.plural });
    },
    request: (...call) => kube.request(...call),
    close: () => kube.close(),
  };
}

export const crashingRegistry = (client: RegistryClient, gate: CrashGate): RegistryClient =>
  gated(client, { gate, prefix: "registry" });

export const crashingDriver = (driver: RuntimeDriver, gate: CrashGate): RuntimeDriver =>
  gated(driver, { gate, prefix: "driver" });

/**
 * Without a prefix no call is an effect. Streams (`watch`, `streamBlob`) pass through: a dead process reads nothing that it
 * could act on.
 */
function gated<C extends object>(client: C, { gate, prefix }: { gate: CrashGate; prefix?: string }): C {
  return new Proxy(client, {
    get(target, property) {
      const member: unknown = Reflect.get(target, property, target);
      if (typeof member !== "function" || typeof property !== "string") return member;
      const call = (...words: unknown[]): unknown => Reflect.apply(member, target, words);
      if (property === "watch" || property === "streamBlob" || property === "close") return call;
      return async (...words: unknown[]) =>
        READS.has(property) || prefix === undefined
          ? gate.read(async () => call(...words))
          : gate.effect(`${prefix}.${property}${subjectOf(words[1])}`, async () => call(...words));
    },
  });
}

/** Fields that a summary at the end of a pass writes: whether a pass has something to summarise is a matter of timing. */
const SUMMARISED: ReadonlySet<string> = new Set([
  "conditions",
  "observedGeneration",
  "observedMode",
  "phase",
  "lastActivityAt",
]);

/** What a status patch is about, as part of the effect's name: `[operation Frozen]`, `[pending nextVersion]`. */
function subjectOf(patch: unknown): string {
  if (!isRecord(patch) || !isRecord(patch["status"])) return "";
  const about = Object.entries(patch["status"])
    .filter(([field]) => !SUMMARISED.has(field))
    .map(([field, value]) =>
      isRecord(value) && typeof value["stage"] === "string" ? `${field} ${value["stage"]}` : field,
    )
    .sort();
  return ` [${about.join(" ")}]`;
}

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null;
