import { computeName } from "../contract.ts";
import type { Containers, InspectedContainer } from "./containers.ts";
import { containerNotFound, isStatus } from "./engine-errors.ts";
import { ownerOf } from "./labels.ts";

/** Most names whose Ids are remembered; the one learnt longest ago gives way and is looked up again. */
const MOST_REMEMBERED = 4096;

/**
 * Compute ids are container names, and a name can be anybody's: made by hand, or by another installation that shares the
 * host. So a name is resolved to an Id by an inspection that checks the labels, and every effect acts on the Id, which an
 * engine never uses again. A container of that name that is not ours counts as absent (DESIGN §4.5).
 */
export class OwnContainers {
  readonly #containers: Containers;
  readonly #installation: string;
  readonly #ids = new Map<string, string>();

  constructor(containers: Containers, installation: string) {
    this.#containers = containers;
    this.#installation = installation;
  }

  /** What the engine says now; undefined when it has no such container of ours. */
  async inspect(name: string, signal: AbortSignal): Promise<InspectedContainer | undefined> {
    const id = this.#ids.get(name);
    const known = id === undefined ? undefined : await this.#containers.inspect(id, signal);
    return known ?? (await this.#resolve(name, signal));
  }

  /** Runs the effect with the container's Id; once more when the Id is gone. Throws `ComputeNotFound`. */
  async act<T>(name: string, effect: (id: string) => Promise<T>, signal: AbortSignal): Promise<T> {
    const id = this.#ids.get(name);
    if (id !== undefined) {
      try {
        return await effect(id);
      } catch (error) {
        if (!isStatus(error, 404)) throw error;
      }
    }
    const container = await this.#resolve(name, signal);
    if (container === undefined) throw containerNotFound(name);
    return await effect(container.Id);
  }

  /** The Id that was verified last, for what needs no engine. */
  known(name: string): string | undefined {
    return this.#ids.get(name);
  }

  /** Takes over an Id that was proven to be ours elsewhere. */
  remember(name: string, id: string): void {
    this.#ids.delete(name);
    this.#ids.set(name, id);
    const [longest] = this.#ids.keys();
    if (this.#ids.size > MOST_REMEMBERED && longest !== undefined) this.#ids.delete(longest);
  }

  forget(name: string): void {
    this.#ids.delete(name);
  }

  async #resolve(name: string, signal: AbortSignal): Promise<InspectedContainer | undefined> {
    this.forget(name);
    const found = await this.#containers.inspect(name, signal);
    if (found === undefined || !this.#isOurs(name, found)) return undefined;
    this.remember(name, found.Id);
    return found;
  }

  #isOurs(name: string, { Config }: InspectedContainer): boolean {
    const owner = ownerOf(Config.Labels);
    return owner?.installation === this.#installation && computeName(owner) === name;
  }
}
