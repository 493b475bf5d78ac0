import { type Clock, monotonicNow } from "../../reconciler/clock.ts";
import { untilAborted } from "../../reconciler/deadline.ts";
import { RuntimeError } from "../errors.ts";
import { isRefusal } from "./engine-errors.ts";

/** How far an exec is: `Created`, perhaps never to be started; `Starting` in the engine; `Settled`: it runs, has ended or is forgotten. */
export type ExecState = "Created" | "Starting" | "Settled";

/** What an engine says of the execs of a container. */
export interface ExecStates {
  /** Execs of a container that are not settled, whoever made them. */
  unsettled(
    container: string,
    signal: AbortSignal,
  ): Promise<readonly { readonly exec: string; readonly state: ExecState }[]>;
  stateOf(exec: string, signal: AbortSignal): Promise<ExecState>;
}

/** The two calls that start a process in a container. */
export interface ExecStart<T> {
  /** Has the engine note an exec, which starts nothing. Returns its Id. */
  create(signal: AbortSignal): Promise<string>;
  /** Has the engine start it and connect to it. */
  attach(exec: string, signal: AbortSignal): Promise<T>;
  /** Lets go of a connection that nobody waits for any more. */
  discard(attached: T): void;
}

/**
 * Whether another process, which freezes the container, may be about to: asked between noting an exec and having the engine
 * start it. Throws where nothing may run in the container any more.
 */
export type MayStart = (container: string, signal: AbortSignal) => Promise<"Now" | "NotYet">;

/** How long the engine may take to answer a start. */
const ATTACH_MS = 20_000;
/** How long a start is followed. An exec that is merely created after that has never reached the engine's start. */
const FOLLOW_MS = 5_000;
/** How long a freeze waits for execs of other processes that are created and perhaps never started. */
const CREATED_MS = 2_500;
/** An exec is started within this of being noted, or not at all: well below what a freeze waits for it. */
const PERMIT_MS = CREATED_MS / 2;
/** Pause between two questions whether something may be started. */
const NOT_YET_MS = 200;
/** How long it waits for the engine to end a start. */
const STARTING_MS = 30_000;
/** How long a freeze may take in the engine, and how long the engine may then be asked whether it is over. */
const FREEZE_MS = 60_000;
const LOOK_MS = 20;
/** Most execs that are remembered as given up; one that is forgotten costs a freeze `CREATED_MS`. */
const MOST_GIVEN_UP = 1024;

/**
 * Starting a process in a container and freezing it exclude each other. An exec that the engine starts into a frozen cgroup
 * waits there for ever and holds the container's lock: inspect, thaw and remove hang, and after them every image removal of
 * the host, until the engine is killed (seen on 20.10, at the first snapshot under eight parallel commands). Starts of this
 * process are counted; those of others are looked up in the engine's own records, and they ask before they start: of a start
 * and a freeze of two processes, whichever comes second sees the first. The one that starts notes its exec and then asks; the
 * one that freezes writes its intent and then looks for execs.
 *
 * An engine goes on with what it was asked for when the client hangs up (moby ContainerExecStart has a context of its own). So
 * a caller that gives up ends its own wait, and nothing else: what counts is what the engine says.
 */
export class ExecStarts {
  readonly #states: ExecStates;
  readonly #clock: Clock;
  readonly #mayStart: MayStart;
  readonly #starting = new Map<string, Set<Promise<void>>>();
  readonly #freezing = new Map<string, Promise<void>>();
  /** Execs that are created and that nobody will start, the one given up longest ago first. */
  readonly #givenUp = new Set<string>();

  /** Without `mayStart` this process is the one that freezes. */
  constructor(states: ExecStates, clock: Clock, mayStart: MayStart = async () => "Now") {
    this.#states = states;
    this.#clock = clock;
    this.#mayStart = mayStart;
  }

  /** Starts an exec once no freeze is under way; a freeze waits until the engine says that it runs. */
  async start<T>(container: string, { create, attach, discard }: ExecStart<T>, signal: AbortSignal): Promise<T> {
    await this.#noFreeze(container, signal);
    const end = this.#begin(container);
    let exec: string;
    try {
      exec = await this.#permitted(container, create, signal);
    } catch (error) {
      end();
      throw error;
    }
    const attaching = attach(exec, AbortSignal.timeout(ATTACH_MS));
    // In the background: the caller's command need not wait for the engine's word.
    void this.#settle(exec, attaching).finally(end);
    try {
      return await untilAborted(attaching, signal);
    } catch (error) {
      // Its failure is judged in #settle; there is nothing to let go of then.
      if (signal.aborted) attaching.then(discard, () => undefined);
      throw error;
    }
  }

  /** Notes an exec that may be started now. One that may not is left as it is: the engine was not asked to start it. */
  async #permitted(container: string, create: ExecStart<unknown>["create"], signal: AbortSignal): Promise<string> {
    for (;;) {
      const begun = monotonicNow(this.#clock);
      const exec = await create(signal);
      try {
        const answer = await this.#mayStart(container, signal);
        signal.throwIfAborted();
        if (answer === "Now" && monotonicNow(this.#clock) - begun < PERMIT_MS) return exec;
      } catch (error) {
        this.#giveUp(exec);
        throw error;
      }
      this.#giveUp(exec);
      while ((await this.#mayStart(container, signal)) === "NotYet") await this.#clock.sleep(NOT_YET_MS, signal);
    }
  }

  /** Runs `freeze` while nothing starts. It has a signal of its own: the caller's ends the caller's wait. */
  async exclude<T>(container: string, freeze: (signal: AbortSignal) => Promise<T>, signal: AbortSignal): Promise<T> {
    await this.#noFreeze(container, signal);
    const ended = Promise.withResolvers<void>();
    this.#freezing.set(container, ended.promise);
    const end = () => {
      this.#freezing.delete(container);
      ended.resolve();
    };
    try {
      await untilAborted(Promise.all(this.#starting.get(container) ?? []), signal);
      await this.#waitForOthers(container, signal);
      signal.throwIfAborted();
    } catch (error) {
      end();
      throw error;
    }
    const freezing = freeze(AbortSignal.timeout(FREEZE_MS));
    void this.#afterFreeze(container, freezing).finally(end);
    return await untilAborted(freezing, signal);
  }

  async #noFreeze(container: string, signal: AbortSignal): Promise<void> {
    for (let freezing = this.#freezing.get(container); freezing; freezing = this.#freezing.get(container))
      await untilAborted(freezing, signal);
    signal.throwIfAborted();
  }

  /** Counts a start; the function it returns ends that. */
  #begin(container: string): () => void {
    const { promise, resolve } = Promise.withResolvers<void>();
    const known = this.#starting.get(container) ?? new Set();
    this.#starting.set(container, known.add(promise));
    return () => {
      known.delete(promise);
      if (known.size === 0 && this.#starting.get(container) === known) this.#starting.delete(container);
      resolve();
    };
  }

  /** Ends when the start has, as far as the engine can say. Never rejects. */
  async #settle(exec: string, attaching: Promise<unknown>): Promise<void> {
    try {
      await attaching;
    } catch (error) {
      // One that was refused stays in the engine's records as created. After a broken call it may be on its way.
      if (isRefusal(error)) {
        this.#giveUp(exec);
        return;
      }
    }
    await this.#follow(exec);
  }

  /** Never rejects: an engine that does not answer says nothing about the start, and the freeze asks it again. */
  async #follow(exec: string): Promise<void> {
    const until = monotonicNow(this.#clock) + FOLLOW_MS;
    const signal = AbortSignal.timeout(FOLLOW_MS + ATTACH_MS);
    try {
      for (;;) {
        const state = await this.#states.stateOf(exec, signal);
        if (state === "Settled") return;
        if (monotonicNow(this.#clock) >= until) {
          if (state === "Created") this.#giveUp(exec);
          return;
        }
        await this.#clock.sleep(LOOK_MS, signal);
      }
    } catch {
      return;
    }
  }

  /**
   * Returns when the engine starts nothing in the container. Another process may have created an exec that it will never start:
   * it is waited for once, and not long. One that the engine is starting is waited for until it runs, or nothing is frozen.
   */
  async #waitForOthers(container: string, signal: AbortSignal): Promise<void> {
    const begun = monotonicNow(this.#clock);
    for (;;) {
      const unsettled = (await this.#states.unsettled(container, signal)).filter(
        ({ exec, state }) => state === "Starting" || !this.#givenUp.has(exec),
      );
      if (unsettled.length === 0) return;
      const waited = monotonicNow(this.#clock) - begun;
      const isStarting = unsettled.some(({ state }) => state === "Starting");
      if (!isStarting && waited >= CREATED_MS) {
        for (const { exec } of unsettled) this.#giveUp(exec);
        return;
      }
      if (waited >= STARTING_MS) throw stillStarting(container);
      await this.#clock.sleep(LOOK_MS, signal);
    }
  }

  /**
   * After a broken call the engine may be freezing still. It answers an inspection of the container when it is not: one lock
   * covers both (moby daemon/pause.go, inspect.go). Never rejects.
   */
  async #afterFreeze(container: string, freezing: Promise<unknown>): Promise<void> {
    try {
      await freezing;
    } catch (error) {
      if (isRefusal(error)) return;
      // An engine that does not answer within the call's own limit starts nothing either.
      await Promise.allSettled([this.#states.unsettled(container, AbortSignal.timeout(FREEZE_MS))]);
    }
  }

  #giveUp(exec: string): void {
    this.#givenUp.add(exec);
    const [longest] = this.#givenUp;
    if (this.#givenUp.size > MOST_GIVEN_UP && longest !== undefined) this.#givenUp.delete(longest);
  }
}

const stillStarting = (container: string): RuntimeError =>
  new RuntimeError(
    "HostRefused",
    `container ${container} is not frozen: the engine has been starting a process in it for ${STARTING_MS / 1000} s`,
  );
