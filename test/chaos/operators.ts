/** Two replicas of the operator that are killed and come back, and the files by which they are told where to die. */
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { open, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { OPERATOR_NAMESPACE } from "../../hack/parts/operator.ts";
import { createKubeClient } from "../../operator/src/kube/client.ts";
import type { KubeClient } from "../../operator/src/kube/contract.ts";
import { LEASES } from "../../operator/src/kube/resource-types.ts";
import type { Lease } from "../../operator/src/reconciler/lease.ts";
import { eventually } from "../kit/wait.ts";
import { CALM, type Control, ControlFiles, type Coverage, coverageOf, type Death } from "./gate/control.ts";
import type { KillPoint } from "./gate/points.ts";

export interface OperatorsOptions {
  readonly directory: string;
  /** Leads to the API server through the fault proxy. */
  readonly kubeconfigPath: string;
  /** Leads to it directly. */
  readonly directKubeconfigPath: string;
  readonly settings: object;
}

interface Replica {
  readonly pid: number;
  readonly exited: Promise<void>;
  kill(signal: "SIGKILL" | "SIGTERM"): void;
}

const REPLICAS = 2;
const PROGRAM = join(import.meta.dirname, "operator-process.ts");
/** A process that ends by itself at once must not be started again in a loop. */
const RESTART_PAUSE_MS = 200;

export class Operators implements AsyncDisposable {
  readonly #options: OperatorsOptions;
  readonly #files: ControlFiles;
  readonly #kube: KubeClient;
  readonly #replicas = new Map<number, Replica>();
  readonly #keepers: Promise<void>[] = [];
  /** Ends that nobody asked for: the product must not leave by itself. */
  readonly #strayEnds: string[] = [];
  readonly #killed = new Set<number>();
  #control: Control = CALM;
  #closing = false;

  constructor(options: OperatorsOptions) {
    this.#options = options;
    this.#files = new ControlFiles(options.directory);
    this.#kube = createKubeClient({ source: { kind: "kubeconfig", path: options.directKubeconfigPath } });
  }

  async start(control: Partial<Control> = {}): Promise<void> {
    await writeFile(this.#configPath, JSON.stringify(this.#options.settings));
    this.set(control);
    for (let number = 0; number < REPLICAS; number++) this.#keepers.push(this.#keep());
    await this.leader();
  }

  /** How operator processes ended that were not killed; empty unless the product has a defect. */
  get strayEnds(): readonly string[] {
    return this.#strayEnds;
  }

  get coverage(): Coverage {
    return coverageOf(this.#files.trace(), this.#files.deaths());
  }

  /** Points in the order of how often they are passed, the most frequent first. */
  frequentPoints(): KillPoint[] {
    const counts = new Map<string, { point: KillPoint; count: number }>();
    for (const { name, moment } of this.#files.trace()) {
      const key = `${moment} ${name}`;
      const known = counts.get(key);
      counts.set(key, { point: { name, moment }, count: (known?.count ?? 0) + 1 });
    }
    return [...counts.values()]
      .sort((a, b) => b.count - a.count || (a.point.name < b.point.name ? -1 : 1))
      .map(({ point }) => point);
  }

  deaths(): Death[] {
    return this.#files.deaths();
  }

  set(change: Partial<Control>): void {
    this.#control = { ...this.#control, ...change };
    this.#files.write(this.#control);
  }

  /** The first process to pass the point for the n-th time dies there; resolves with whether one did in time. */
  async killAt(point: KillPoint, nth: number, withinMs: number): Promise<boolean> {
    const id = randomUUID();
    this.set({ armed: { ...point, id, nth } });
    try {
      return await this.#untilDeath((death) => death.armed === id, withinMs);
    } finally {
      const { armed: _, ...rest } = this.#control;
      this.#control = rest;
      this.#files.write(rest);
    }
  }

  /** Kills the process that holds the lease, whatever it is doing. */
  async killLeader(): Promise<void> {
    this.#kill(await this.leader());
  }

  async killAll(): Promise<void> {
    const all = [...this.#replicas.values()];
    for (const replica of all) this.#kill(replica);
    await Promise.all(all.map((replica) => replica.exited));
  }

  /** SIGTERM to the leader, which is to drain or hand over. */
  async drainLeader(): Promise<void> {
    const leader = await this.leader();
    this.#killed.add(leader.pid);
    leader.kill("SIGTERM");
    await leader.exited;
  }

  async #untilDeath(isIt: (death: Death) => boolean, withinMs: number): Promise<boolean> {
    const until = performance.now() + withinMs;
    for (;;) {
      if (this.#files.deaths().some(isIt)) return true;
      if (performance.now() > until) return false;
      await pause(25);
    }
  }

  /** The process that the lease names: its identity holds the process id. */
  leader(): Promise<Replica> {
    return eventually(
      async (signal) => {
        const lease = await this.#kube
          .resource<Lease>(LEASES)
          .get({ namespace: OPERATOR_NAMESPACE, name: "agent-worlds-controller" }, { signal });
        const pid = Number(/-(\d+)_/.exec(lease.spec?.holderIdentity ?? "")?.[1]);
        return this.#replicas.get(pid);
      },
      { timeoutMs: 120_000, what: "a leader" },
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing = true;
    this.set({ ...CALM });
    for (const replica of this.#replicas.values()) this.#kill(replica);
    await Promise.all(this.#keepers);
    await this.#kube.close();
  }

  get #configPath(): string {
    return join(this.#options.directory, "operator.yaml");
  }

  get logPath(): string {
    return join(this.#options.directory, "operators.log");
  }

  #kill(replica: Replica): void {
    this.#killed.add(replica.pid);
    replica.kill("SIGKILL");
  }

  /** Starts a replica again and again. */
  async #keep(): Promise<void> {
    while (!this.#closing) {
      const { replica, ended } = await this.#launch();
      this.#replicas.set(replica.pid, replica);
      const how = await ended;
      this.#replicas.delete(replica.pid);
      if (!this.#isExpected(replica.pid)) this.#strayEnds.push(`process ${replica.pid} ${how}`);
      if (!this.#closing) await pause(RESTART_PAUSE_MS);
    }
  }

  #isExpected(pid: number): boolean {
    return this.#closing || this.#killed.has(pid) || this.#files.deaths().some((death) => death.pid === pid);
  }

  async #launch(): Promise<{ replica: Replica; ended: Promise<string> }> {
    await using log = await open(this.logPath, "a");
    const child = spawn(
      "setpriv",
      ["--pdeathsig", "KILL", "--", process.execPath, PROGRAM, this.#configPath, this.#options.kubeconfigPath],
      {
        env: { ...process.env, CHAOS_CONTROL: this.#options.directory, NODE_NO_WARNINGS: "1" },
        stdio: ["ignore", log.fd, log.fd],
        detached: true,
      },
    );
    await once(child, "spawn");
    const ended = new Promise<string>((resolve) => {
      child.once("exit", (code, signal) => resolve(signal === null ? `exited with ${code}` : `was ended by ${signal}`));
    });
    const replica: Replica = {
      pid: child.pid ?? 0,
      exited: ended.then(() => undefined),
      kill: (signal) => void child.kill(signal),
    };
    return { replica, ended };
  }
}

const pause = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds));
