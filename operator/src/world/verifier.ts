/**
 * Looks at every listed version of every World once per interval, at a bounded rate: a registry that lost bytes is noticed
 * before somebody needs them. It writes nothing: what changed is told to the World's own passes, which write conditions.
 */
import type { World } from "@agentworlds/crds";
import type { Clock } from "../reconciler/clock.ts";
import type { Log } from "../reconciler/log.ts";
import { keyOf } from "../reconciler/store.ts";
import { RegistryError } from "../registry/errors.ts";
import type { InstallationRegistry } from "../registry/installation.ts";
import { findAhead } from "./registry-ahead.ts";
import type { ObjectReader } from "./scope.ts";
import { statusOf, WorldGone, type WorldStatusWriter } from "./status-writer.ts";
import { type DamagedVersion, type LineageFindings, LineageLook, type Pace, turnOf } from "./verification.ts";

export interface VerificationMetrics {
  /** A World's versions were looked at. */
  verified(sample: { versions: number; at: number }): void;
  /** A World could not be looked at: the registry did not answer. */
  failed(): void;
  /** Versions known to be damaged now, of all Worlds. */
  damaged(versions: number): void;
}

export interface VerifierOptions {
  readonly worlds: ObjectReader<World>;
  readonly writer: Pick<WorldStatusWriter, "read">;
  readonly registry: InstallationRegistry;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: VerificationMetrics;
  /** Each World is looked at once in this time. */
  readonly intervalMs: number;
  /** Calls to the registry per second, at most. */
  readonly callsPerSecond: number;
  /** The findings of this World are others than before, or its registry is ahead of its head. */
  readonly onChange: (key: string) => void;
}

/** How often it is looked whose turn it is. */
const LOOK_MS = 60_000;
/** A World with damage is looked at again after this: somebody may be restoring the registry. */
const DAMAGED_AGAIN_MS = 600_000;

export class LineageVerifier {
  readonly #options: VerifierOptions;
  readonly #findings = new Map<string, LineageFindings>();
  readonly #turns = new Map<string, number>();

  constructor(options: VerifierOptions) {
    this.#options = options;
  }

  /** What was found of the World with this UID since this process leads; undefined before its first turn. */
  findingsOf(uid: string): LineageFindings | undefined {
    return this.#findings.get(uid);
  }

  /** Until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, intervalMs, log } = this.#options;
    while (!signal.aborted) {
      try {
        await this.look(signal);
        await clock.sleep(Math.min(LOOK_MS, intervalMs), signal);
      } catch (error) {
        if (signal.aborted) return;
        log.error({ err: error }, "a round of verification ended early; the next one goes on");
        await clock.sleep(LOOK_MS, signal).catch((reason: unknown) => {
          if (!signal.aborted) throw reason;
        });
      }
    }
  }

  /** One round: every World whose turn has come. */
  async look(signal: AbortSignal): Promise<void> {
    this.#forgetTheGone();
    for (const world of this.#options.worlds.list()) {
      signal.throwIfAborted();
      if (!this.#isDue(world)) continue;
      await this.#verify(world, signal);
    }
  }

  /** A World that is seen for the first time waits for its next turn: a restart is no reason to read every registry anew. */
  #isDue({ metadata: { uid }, status }: World): boolean {
    if (!status?.head) return false;
    const { clock, intervalMs } = this.#options;
    const now = clock.now();
    const turn = turnOf(uid, { now, intervalMs });
    const last = this.#turns.get(uid);
    if (last === undefined) this.#turns.set(uid, turn);
    const known = this.#findings.get(uid);
    const isDamaged = known !== undefined && known.damaged.length > 0;
    return (last !== undefined && last !== turn) || (isDamaged && now - known.at >= DAMAGED_AGAIN_MS);
  }

  async #verify(world: World, signal: AbortSignal): Promise<void> {
    const { registry, clock, log, metrics, intervalMs, onChange } = this.#options;
    const { uid } = world.metadata;
    const status = statusOf(world);
    const host = `${registry.host}/`;
    const turn = turnOf(uid, { now: clock.now(), intervalMs });
    if (!status.repository?.startsWith(host)) return;
    const repository = status.repository.slice(host.length);
    try {
      const damaged = await this.#damagedOf(world, { repository, signal });
      const before = this.#findings.get(uid)?.damaged ?? [];
      this.#findings.set(uid, { at: clock.now(), damaged });
      this.#turns.set(uid, turn);
      metrics.verified({ versions: status.versions?.length ?? 0, at: clock.now() });
      this.#measureDamage();
      const isAhead = await this.#isAhead(world, { repository, signal });
      if (isAhead || damaged.length > 0 || before.length > 0 || claimsDamage(world)) onChange(keyOf(world));
    } catch (error) {
      if (error instanceof WorldGone) return;
      if (!(error instanceof RegistryError)) throw error;
      metrics.failed();
      log.warn({ err: error, repository }, "the versions of a World could not be verified; it is tried again");
    }
  }

  /** Damage is believed when the World, read afresh, still lists the version: retention deletes manifests too. */
  async #damagedOf(
    world: World,
    { repository, signal }: { repository: string; signal: AbortSignal },
  ): Promise<readonly DamagedVersion[]> {
    const { registry, writer } = this.#options;
    const look = new LineageLook(registry.client, repository, this.#pace());
    const damaged: DamagedVersion[] = [];
    for (const version of statusOf(world).versions?.toReversed() ?? []) {
      const damage = await look.damageOf(version, signal);
      if (damage) damaged.push(damage);
    }
    if (damaged.length === 0) return damaged;
    const { namespace = "", name, uid } = world.metadata;
    const { versions = [] } = statusOf(await writer.read({ namespace, name, uid }, signal));
    return damaged.filter(({ digest }) => versions.some((version) => version.digest === digest));
  }

  async #isAhead(world: World, { repository, signal }: { repository: string; signal: AbortSignal }): Promise<boolean> {
    const { registry } = this.#options;
    if (statusOf(world).registryHead) return false;
    const tags = await registry.client.listTags(repository, signal);
    return (await findAhead({ registry, world, repository, tags }, signal)) !== undefined;
  }

  #pace(): Pace {
    const { clock, callsPerSecond } = this.#options;
    return (signal) => clock.sleep(1000 / callsPerSecond, signal);
  }

  #forgetTheGone(): void {
    const living = new Set(this.#options.worlds.list().map(({ metadata }) => metadata.uid));
    for (const uid of this.#turns.keys()) if (!living.has(uid)) this.#turns.delete(uid);
    const gone = [...this.#findings.keys()].filter((uid) => !living.has(uid));
    for (const uid of gone) this.#findings.delete(uid);
    if (gone.length > 0) this.#measureDamage();
  }

  #measureDamage(): void {
    const counts = [...this.#findings.values()].map(({ damaged }) => damaged.length);
    this.#options.metrics.damaged(counts.reduce((sum, count) => sum + count, 0));
  }
}

/** An earlier process found damage, which this one has not seen: the World's pass compares. */
const claimsDamage = ({ status }: World): boolean =>
  (status?.conditions ?? []).some(
    ({ type, reason }) => type === "VersionsDamaged" || (type === "HeadAvailable" && reason === "HeadDamaged"),
  );
