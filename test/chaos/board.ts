/**
 * What an outside observer sees of the cluster: looked up again and again, directly and not through any fault. It writes down
 * each version that is acknowledged, each confession of a loss, and knows whether anything is on its way.
 */
import type { Sandbox, World } from "@agentworlds/crds";
import { NeverHappened } from "../../hack/parts/errors.ts";
import { createKubeClient } from "../../operator/src/kube/client.ts";
import type { KubeClient, ResourceClient } from "../../operator/src/kube/contract.ts";
import { SANDBOXES, WORLDS } from "../../operator/src/kube/resource-types.ts";
import type { Ledger } from "./ledger.ts";

const LOOK_MS = 150;

export class BoardClosed extends Error {
  override readonly name = "BoardClosed";
}

export class Board implements AsyncDisposable {
  readonly kube: KubeClient;
  readonly worlds: ResourceClient<World>;
  readonly sandboxes: ResourceClient<Sandbox>;
  readonly #ledger: Ledger;
  readonly #noted = new Set<string>();
  readonly #stop = new AbortController();
  readonly #closed = new AbortController();
  readonly #looking: Promise<void>;
  #sandboxes: ReadonlyMap<string, Sandbox> = new Map();
  #worlds: ReadonlyMap<string, World> = new Map();
  /** Counts complete looks. */
  #looks = 0;

  constructor(options: { kubeconfigPath: string; ledger: Ledger }) {
    this.kube = createKubeClient({
      source: { kind: "kubeconfig", path: options.kubeconfigPath },
      userAgent: "chaos-workload",
    });
    this.worlds = this.kube.resource<World>(WORLDS);
    this.sandboxes = this.kube.resource<Sandbox>(SANDBOXES);
    this.#ledger = options.ledger;
    this.#looking = this.#lookAgainAndAgain();
  }

  sandbox(uid: string): Sandbox | undefined {
    return this.#sandboxes.get(uid);
  }

  world(name: string): World | undefined {
    return this.#worlds.get(name);
  }

  allSandboxes(): readonly Sandbox[] {
    return [...this.#sandboxes.values()];
  }

  allWorlds(): readonly World[] {
    return [...this.#worlds.values()];
  }

  /** Operations on their way now: boots, snapshots, endings, Worlds that become. */
  inFlight(): string[] {
    return [
      ...this.allSandboxes().flatMap((sandbox) => (isInFlight(sandbox) ? [`sandbox ${sandbox.metadata.name}`] : [])),
      ...this.allWorlds().flatMap(({ metadata, status }) =>
        status?.head === undefined || status.pending !== undefined ? [`world ${metadata.name}`] : [],
      ),
    ];
  }

  /** The same for people: `w1-s2 (Frozen)`, `w1-s3 (RegistryUnavailable)`, with the stage or what it waits for. */
  stillWaitedFor(): string {
    const sandboxes = this.allSandboxes().filter(isInFlight);
    return sandboxes.map(({ metadata, status }) => `${metadata.name} (${whereIs(status)})`).join(", ");
  }

  /**
   * Resolves with the first answer of `check` that is not undefined; it is asked at every look.
   * @throws NeverHappened when the time is over; `BoardClosed` after `close`.
   */
  async until<T>(check: () => T | undefined, options: { what: string; timeoutMs: number }): Promise<T> {
    const until = performance.now() + options.timeoutMs;
    for (;;) {
      this.#closed.signal.throwIfAborted();
      const seen = check();
      if (seen !== undefined) return seen;
      if (performance.now() > until)
        throw new NeverHappened(`${options.what} did not happen within ${options.timeoutMs} ms`);
      await pause(LOOK_MS / 2);
    }
  }

  /** Resolves when everything was looked at anew, begun after this call. */
  async fresh(): Promise<void> {
    const after = this.#looks + 2;
    await this.until(() => (this.#looks >= after ? true : undefined), {
      what: "a look at the cluster",
      timeoutMs: 120_000,
    });
  }

  /** Nobody need wait any more. */
  close(): void {
    this.#closed.abort(new BoardClosed("the run is over"));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
    this.#stop.abort();
    await this.#looking;
    await this.kube.close();
  }

  async #lookAgainAndAgain(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      try {
        await this.#look(signal);
      } catch {
        // The API server is away: a fault of this run. What was seen last stays on the board.
      }
      await pause(LOOK_MS);
    }
  }

  async #look(signal: AbortSignal): Promise<void> {
    const call = { signal, deadlineMs: 5_000 };
    const [sandboxes, worlds] = await Promise.all([this.sandboxes.list(call), this.worlds.list(call)]);
    this.#sandboxes = new Map(sandboxes.items.map((sandbox) => [sandbox.metadata.uid ?? "", sandbox]));
    this.#worlds = new Map(worlds.items.map((world) => [world.metadata.name, world]));
    for (const world of this.#worlds.values()) this.#noteWorld(world);
    for (const sandbox of this.#sandboxes.values()) this.#noteSandbox(sandbox);
    this.#looks += 1;
  }

  #noteWorld({ metadata, status }: World): void {
    const world = metadata.name;
    const repository = status?.repository?.replace(/^[^/]+\//, "");
    if (repository !== undefined) this.#once(`repository ${world}`, { kind: "repository", world, repository });
    if (status?.head) this.#noteVersion(world, status.head);
    for (const { sandbox, reason, computeId, capture } of status?.rescues ?? []) {
      const boot = Number(/-(\d+)$/.exec(computeId)?.[1] ?? 0);
      const kept = capture ?? computeId;
      if (sandbox === undefined) continue;
      const confession = { sandbox: sandbox.uid, boot, condition: "Rescued", reason, kept };
      this.#once(`rescued ${sandbox.uid} ${boot}`, { kind: "confessed", ...confession });
    }
  }

  #noteSandbox({ metadata, spec, status }: Sandbox): void {
    const world = spec.world?.name;
    const sandbox = metadata.uid ?? "";
    if (world === undefined) return;
    if (status.lastSnapshot) this.#noteVersion(world, status.lastSnapshot);
    const { closed, lastEnding } = status;
    if (closed?.version !== undefined && closed.digest !== undefined) {
      this.#noteVersion(world, { version: closed.version, digest: closed.digest });
    }
    for (const { id, result } of status.requests ?? []) {
      if (result?.version === undefined || result.digest === undefined) continue;
      this.#noteVersion(world, { version: result.version, digest: result.digest }, id);
    }
    if (lastEnding?.outcome !== "Lost") return;
    const { boot, reason } = lastEnding;
    const isSaid = status.conditions?.some(({ type, status: is }) => type === "ComputeLost" && is === "True");
    if (!isSaid) return;
    this.#once(`lost ${sandbox} ${boot}`, { kind: "confessed", sandbox, boot, condition: "ComputeLost", reason });
  }

  #noteVersion(world: string, { version, digest }: { version: number; digest: string }, request?: string): void {
    const fact = { kind: "version", world, version, digest, ...(request === undefined ? {} : { request }) } as const;
    this.#once(`version ${world} ${version} ${digest} ${request}`, fact);
  }

  #once(key: string, fact: Parameters<Ledger["note"]>[0]): void {
    if (this.#noted.has(key)) return;
    this.#noted.add(key);
    this.#ledger.note(fact);
  }
}

function whereIs({ operation, conditions }: Sandbox["status"]): string {
  const waiting = conditions?.find(({ type, status }) => type !== "Ready" && status === "False");
  return operation?.stage ?? waiting?.reason ?? "on its way";
}

/** On its way somewhere, and not waiting for a deadline, a person or another session. */
export function isInFlight({ metadata, spec, status }: Sandbox): boolean {
  if (metadata.deletionTimestamp !== undefined || status.operation !== undefined) return true;
  if (status.compute !== undefined) return status.compute.provisionedAt === undefined;
  if (status.requests?.some(({ result }) => result === undefined)) return true;
  return spec.mode === "Running" && (status.boot ?? 0) === 0 && status.closed === undefined;
}

const pause = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds));
