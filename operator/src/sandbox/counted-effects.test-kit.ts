/** Effects outside the process, counted, so that a test can end the operator between any two of them. */
import type { ResourceClient } from "../kube/contract.ts";
import type { KubeObject } from "../reconciler/list-watch.ts";
import type { RegistryClient } from "../registry/contract.ts";

/** The operator ended here. */
export class Killed extends Error {
  override readonly name = "Killed";
}

/** Counts every effect outside the process, and ends the process before or after a chosen one. */
export class Effects {
  /** Names of effects so far, in order. */
  readonly seen: string[] = [];
  /** Whether the process has ended at the chosen effect. */
  wasKilled = false;
  #isDead = false;
  #kill: { readonly index: number; readonly when: "before" | "after" } | undefined;
  #killAfter: string | undefined;
  readonly #beforeNext = new Map<string, () => void>();

  constructor(kill?: { index: number; when: "before" | "after" }) {
    this.#kill = kill;
  }

  /** Ends the process after the next effect of this name. */
  killAfter(name: string): void {
    this.#killAfter = name;
  }

  /** Something happens outside right before the next effect of this name. */
  beforeNext(name: string, happen: () => void): void {
    this.#beforeNext.set(name, happen);
  }

  /** A new process begins; it is not killed again. */
  restart(): void {
    this.#isDead = false;
  }

  /** A read: it changes nothing, and a dead process makes none. */
  async read<R>(call: () => Promise<R>): Promise<R> {
    if (this.#isDead) throw new Killed("the operator does not run");
    return call();
  }

  async write<R>(name: string, call: () => Promise<R>): Promise<R> {
    if (this.#isDead) throw new Killed("the operator does not run");
    if (name === this.#killAfter) {
      this.#kill = { index: this.seen.length, when: "after" };
      this.#killAfter = undefined;
    }
    this.#beforeNext.get(name)?.();
    this.#beforeNext.delete(name);
    const isLast = this.seen.push(name) - 1 === this.#kill?.index;
    if (isLast && this.#kill?.when === "before") this.#die(`before ${name}`);
    try {
      return await call();
    } finally {
      if (isLast) this.#die(`after ${name}`);
    }
  }

  #die(where: string): never {
    this.#isDead = true;
    this.wasKilled = true;
    throw new Killed(where);
  }
}

/** A client whose writes are effects. */
export function tracedResource<T extends KubeObject>(
  kind: string,
  client: ResourceClient<T>,
  effects: Effects,
): ResourceClient<T> {
  return {
    ...client,
    get: (...call) => effects.read(() => client.get(...call)),
    patch: (...call) => effects.write(`patch ${kind}`, () => client.patch(...call)),
    patchStatus: (...call) => effects.write(`patch ${kind} status`, () => client.patchStatus(...call)),
    delete: (...call) => effects.write(`delete ${kind}`, () => client.delete(...call)),
  };
}

/** A registry whose writes are effects. */
export function tracedRegistry(client: RegistryClient, effects: Effects): RegistryClient {
  return {
    ...client,
    getManifest: (...call) => effects.read(() => client.getManifest(...call)),
    getBlob: (...call) => effects.read(() => client.getBlob(...call)),
    verifyBlob: (...call) => effects.read(() => client.verifyBlob(...call)),
    putBlob: (...call) => effects.write("put blob", () => client.putBlob(...call)),
    putManifest: (repository, manifest, signal) =>
      effects.write(manifest.reference.startsWith("sha256:") ? "put manifest" : `tag ${manifest.reference}`, () =>
        client.putManifest(repository, manifest, signal),
      ),
    deleteManifest: (...call) => effects.write("delete manifest", () => client.deleteManifest(...call)),
  };
}
