import type { Clock } from "../../reconciler/clock.ts";

/** What an engine says of the execs of a container. */
export interface ExecStates {
  /** Execs that were created and of which the engine does not know yet that they run or have ended. */
  pending(container: string, signal: AbortSignal): Promise<readonly string[]>;
  /** Whether one exec is still on its way. One that the engine has forgotten is not. */
  isPending(exec: string, signal: AbortSignal): Promise<boolean>;
}

/** How long a start is followed, and how long a freeze waits for starts of other processes. */
const START_MS = 5_000;
const LOOK_MS = 20;

/**
 * Starting a process in a container and freezing it exclude each other. An exec that the engine starts into a frozen cgroup
 * waits there for ever and holds the container's lock: inspect, thaw and remove hang, and after them every image removal of
 * the host, until the engine is killed (seen on 20.10, at the first snapshot under eight parallel commands). Starts of this
 * process are counted; those of others are looked up in the engine's own records.
 */
export class ExecStarts {
  readonly #states: ExecStates;
  readonly #clock: Clock;
  readonly #starting = new Map<string, Set<Promise<void>>>();
  readonly #freezing = new Map<string, Promise<void>>();
  /** Execs that a freeze has waited for in vain. */
  readonly #givenUp = new Map<string, Set<string>>();

  constructor(states: ExecStates, clock: Clock) {
    this.#states = states;
    this.#clock = clock;
  }

  /** Starts an exec once no freeze is under way; a freeze waits until the engine says that it runs. */
  async start<T>(
    container: string,
    begin: (onCreated: (exec: string) => void) => Promise<T>,
    signal: AbortSignal,
  ): Promise<T> {
    for (let freezing = this.#freezing.get(container); freezing; freezing = this.#freezing.get(container))
      await freezing;
    signal.throwIfAborted();
    const ended = Promise.withResolvers<void>();
    const starting = this.#startingIn(container);
    starting.add(ended.promise);
    const end = () => {
      starting.delete(ended.promise);
      ended.resolve();
    };
    let created: string | undefined;
    const onCreated = (exec: string) => {
      created = exec;
    };
    try {
      const result = await begin(onCreated);
      // Followed in the background: the caller's command need not wait for the engine's word.
      void this.#follow(created).finally(end);
      return result;
    } catch (error) {
      // One that was refused at its start stays pending in the engine's records, and is on no way.
      if (created !== undefined) this.#giveUp(container, created);
      end();
      throw error;
    }
  }

  /** Runs `freeze` while nothing starts. */
  async exclude<T>(container: string, freeze: () => Promise<T>, signal: AbortSignal): Promise<T> {
    for (let other = this.#freezing.get(container); other; other = this.#freezing.get(container)) await other;
    const ended = Promise.withResolvers<void>();
    this.#freezing.set(container, ended.promise);
    try {
      await Promise.all(this.#startingIn(container));
      await this.#waitForOthers(container, signal);
      return await freeze();
    } finally {
      this.#freezing.delete(container);
      ended.resolve();
    }
  }

  #startingIn(container: string): Set<Promise<void>> {
    const known = this.#starting.get(container) ?? new Set();
    this.#starting.set(container, known);
    return known;
  }

  /** Never rejects: an engine that does not answer says nothing about the start, and the freeze asks it again. */
  async #follow(exec: string | undefined): Promise<void> {
    if (exec === undefined) return;
    const until = AbortSignal.timeout(START_MS);
    try {
      while (await this.#states.isPending(exec, until)) await this.#clock.sleep(LOOK_MS, until);
    } catch {
      return;
    }
  }

  /** Another process may have created one that it will never start: it is waited for once, and not long. */
  async #waitForOthers(container: string, signal: AbortSignal): Promise<void> {
    const giveUpAt = this.#clock.now() + START_MS / 2;
    for (;;) {
      const pending = (await this.#states.pending(container, signal)).filter(
        (exec) => !this.#givenUp.get(container)?.has(exec),
      );
      if (pending.length === 0) return;
      if (this.#clock.now() >= giveUpAt) {
        for (const exec of pending) this.#giveUp(container, exec);
        return;
      }
      await this.#clock.sleep(LOOK_MS, signal);
    }
  }

  #giveUp(container: string, exec: string): void {
    const given = this.#givenUp.get(container) ?? new Set();
    this.#givenUp.set(container, given.add(exec));
  }

  /** Nothing is remembered of a container that is gone. */
  forget(container: string): void {
    this.#starting.delete(container);
    this.#givenUp.delete(container);
  }
}
