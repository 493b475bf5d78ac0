import type { KubeClient, ResourceClient, ResourceType } from "../../operator/src/kube/contract.ts";
import type { KubeObject } from "../../operator/src/reconciler/list-watch.ts";
import type { RegistryClient } from "../../operator/src/registry/contract.ts";
import type { RuntimeDriver } from "../../operator/src/runtime/contract.ts";

/** A point of a run: before or after the n-th effect, counted from 0. */
export interface CrashPoint {
  readonly effect: number;
  readonly moment: "before" | "after";
}

/** Every call of a process that is dead. */
export class Crashed extends Error {
  override readonly name = "Crashed";
}

/**
 * Counts every call that changes something outside the process, and dies at the chosen one: from then on every call fails,
 * so that nothing more reaches the outside, as after SIGKILL. The clients themselves derive the points: a new effect cannot
 * lack one, because an effect is every call that is not listed as a read.
 */
export class CrashGate {
  readonly #point: CrashPoint | undefined;
  readonly #effects: string[] = [];
  readonly #died = Promise.withResolvers<string>();
  #counting = false;
  #dead = false;

  constructor(point?: CrashPoint) {
    this.#point = point;
  }

  /** Effects so far, by name, in order. */
  get effects(): readonly string[] {
    return this.#effects;
  }

  /** Resolves with the effect's name when the process has died. */
  get died(): Promise<string> {
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
    const index = isCounted ? this.#effects.push(name) - 1 : -1;
    if (isCounted) this.#dieAt({ effect: index, moment: "before" }, name);
    const result = await call();
    this.#alive();
    if (isCounted) this.#dieAt({ effect: index, moment: "after" }, name);
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

  #dieAt(here: CrashPoint, name: string): void {
    if (this.#point?.effect !== here.effect || this.#point.moment !== here.moment) return;
    this.#dead = true;
    this.#died.resolve(`${here.moment} ${name}`);
    throw new Crashed(`died ${here.moment} ${name}`);
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
  "getBlob",
  "streamBlob",
  "verifyBlob",
  "probe",
  "inspect",
  "readFile",
  "close",
]);

/** Resources whose writes are bookkeeping of the process itself: dying there is dying before or after the next effect. */
const NOT_COUNTED: ReadonlySet<string> = new Set(["leases", "events"]);

export function crashingKube(kube: KubeClient, gate: CrashGate): KubeClient {
  return {
    resource<T extends KubeObject>(type: ResourceType): ResourceClient<T> {
      const client = kube.resource<T>(type);
      return NOT_COUNTED.has(type.plural) ? client : gated(client, gate, type.plural);
    },
    request: (...call) => kube.request(...call),
    close: () => kube.close(),
  };
}

export const crashingRegistry = (client: RegistryClient, gate: CrashGate): RegistryClient =>
  gated(client, gate, "registry");

export const crashingDriver = (driver: RuntimeDriver, gate: CrashGate): RuntimeDriver => gated(driver, gate, "driver");

/** Streams (`watch`, `streamBlob`) pass through: a dead process reads nothing that it could act on. */
function gated<C extends object>(client: C, gate: CrashGate, prefix: string): C {
  return new Proxy(client, {
    get(target, property) {
      const member: unknown = Reflect.get(target, property, target);
      if (typeof member !== "function" || typeof property !== "string") return member;
      const call = (...words: unknown[]): unknown => Reflect.apply(member, target, words);
      if (property === "watch" || property === "streamBlob" || property === "close") return call;
      return async (...words: unknown[]) =>
        READS.has(property)
          ? gate.read(async () => call(...words))
          : gate.effect(`${prefix}.${property}`, async () => call(...words));
    },
  });
}
