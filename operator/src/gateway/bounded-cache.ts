import type { Clock } from "../reconciler/clock.ts";

/** A cache that forgets: every entry after `ttlMs`, the oldest one when `maxEntries` is reached. */
export class BoundedCache<T> {
  readonly #entries = new Map<string, { value: T; until: number }>();
  readonly #limits: { ttlMs: number; maxEntries: number };
  readonly #clock: Clock;

  constructor(clock: Clock, limits: { ttlMs: number; maxEntries: number }) {
    this.#clock = clock;
    this.#limits = limits;
  }

  /** The value while it is fresh. A clock set back makes it stale too: time that cannot be judged has run out. */
  get(key: string): T | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    const left = entry.until - this.#clock.now();
    if (left > 0 && left <= this.#limits.ttlMs) return entry.value;
    this.#entries.delete(key);
    return undefined;
  }

  set(key: string, value: T): void {
    this.#entries.delete(key);
    if (this.#entries.size >= this.#limits.maxEntries) {
      const oldest = this.#entries.keys().next();
      if (!oldest.done) this.#entries.delete(oldest.value);
    }
    this.#entries.set(key, { value, until: this.#clock.now() + this.#limits.ttlMs });
  }

  clear(): void {
    this.#entries.clear();
  }
}
