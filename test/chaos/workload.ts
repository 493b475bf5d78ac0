/**
 * Agents at work: several lanes, each with a World of its own at a time, live sessions in it from creation to their end, in
 * every way a session can end. Whatever is acknowledged to them goes into the ledger; they judge nothing.
 */
import { randomUUID } from "node:crypto";
import type { Sandbox } from "@agentworlds/crds";
import { callEngine } from "../../hack/parts/engine-api.ts";
import type { RuntimeDriver } from "../../operator/src/runtime/contract.ts";
import { createDockerDriver } from "../../operator/src/runtime/docker/driver.ts";
import { RuntimeError } from "../../operator/src/runtime/errors.ts";
import { loadHelper } from "../../operator/src/runtime/helper.ts";
import type { Witness } from "./auditor/witness.ts";
import { type Board, BoardClosed } from "./board.ts";
import type { Random } from "./draw/random.ts";
import type { Ground } from "./ground.ts";
import type { Files, Ledger } from "./ledger.ts";
import { ask, createOnce, persistently, remove, type SandboxRef, setMode, touch, unlessGone } from "./session-calls.ts";

/** How a boot is to end. */
const ENDS = [
  { weight: 3, value: "deadline" },
  { weight: 4, value: "close" },
  { weight: 3, value: "delete" },
  { weight: 4, value: "mode" },
  { weight: 1, value: "discard" },
] as const;
type End = (typeof ENDS)[number]["value"];

/** Sessions of one World before its lane takes another. */
const LIVES = 7;
/** A life that takes longer is left to itself: the lane goes on in another World, and the settling waits for it. */
const PATIENCE_MS = 60_000;
/** Worlds that wait for their last session, before lanes wait as well. */
const MOST_LEFT = 6;
const EXEC_MS = 10_000;
const SHORT_TTL_S = 3;
const LONG_TTL_S = 600;

export interface WorkloadOptions {
  readonly ground: Ground;
  readonly board: Board;
  readonly ledger: Ledger;
  /** Looks at a World that is about to go with its versions. */
  readonly witness: Pick<Witness, "look">;
  readonly random: Random;
  readonly lanes: number;
  readonly installation: string;
}

/** What can be told of a session while it is there. */
interface Session {
  readonly world: string;
  readonly uid: string;
  readonly ref: SandboxRef;
}

export class Workload implements AsyncDisposable {
  readonly #options: WorkloadOptions;
  readonly #driver: RuntimeDriver;
  readonly #lanes: Promise<void>[];
  /** Worlds that their lane has left, with the ends of their sessions. */
  readonly #left = new Set<Promise<boolean>>();
  readonly #failures: unknown[] = [];
  readonly #settled: Session[] = [];
  /** Worlds that take their versions with them. */
  readonly #takers = new Set<string>();
  #resting = false;
  #lives = 0;
  #worlds = 0;

  constructor(options: WorkloadOptions) {
    this.#options = options;
    this.#driver = createDockerDriver({
      installation: options.installation,
      endpoint: options.ground.engine.dockerHost,
      helper: (platform, signal) => loadHelper({ platform }, signal),
    });
    this.#lanes = Array.from({ length: options.lanes }, (_, lane) => this.#work(options.random.fork(`lane ${lane}`)));
  }

  /** Sessions begun so far. */
  get lives(): number {
    return this.#lives;
  }

  /** Why lives could not be lived to their end. */
  get failures(): readonly string[] {
    return this.#failures.map((error) => (error instanceof Error ? error.message : String(error)));
  }

  /** No new session begins; resolves when those under way have ended. */
  async rest(): Promise<void> {
    this.#resting = true;
    await Promise.all(this.#lanes);
    await Promise.all(this.#left);
  }

  /** A new World, and a session in it that runs on or has gone to sleep, until `finish`. */
  async settle(mode: "Running" | "Hibernated"): Promise<void> {
    const world = await this.#createWorld();
    const session = await this.#open(world, { ttlSeconds: 3_600 });
    this.#settled.push(session);
    if ((await this.#ready(session, 1)) === undefined) return;
    await this.#write(session, 1);
    if (mode === "Running") return;
    await setMode(this.#options.board, session.ref, "Hibernated");
    await this.#ended(session, 1);
  }

  /** Deletes every session that is still there, and waits for the ends of those that were settled. */
  async finish(): Promise<void> {
    const { board, ground } = this.#options;
    for (const { metadata } of board.allSandboxes()) {
      await remove(board, { name: metadata.name, namespace: ground.namespace });
    }
    for (const session of this.#settled) {
      await this.#gone(session);
      await this.#ended(session, 1);
    }
  }

  /** Deletes every World that is still there. */
  async finishWorlds(): Promise<void> {
    for (const { metadata } of this.#options.board.allWorlds()) await this.#deleteWorld(metadata.name);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#resting = true;
    this.#options.board.close();
    await Promise.allSettled([...this.#lanes, ...this.#left]);
    await this.#driver.close();
  }

  async #work(random: Random): Promise<void> {
    while (!this.#resting) {
      const world = await this.#createWorld();
      const lives: Promise<boolean>[] = [];
      let inTime = true;
      while (inTime && lives.length < LIVES && !this.#resting) {
        const life = this.#followed(this.#live(world, random));
        lives.push(life);
        inTime = await this.#withPatience(life);
      }
      const over = this.#followed(this.#retire(world, lives));
      this.#left.add(over);
      void over.then(() => this.#left.delete(over));
      // What is left must not pile up: an operator that does nothing but catch up would be hit in the same place for ever.
      while (this.#left.size > MOST_LEFT && !this.#resting) await Promise.race(this.#left);
    }
  }

  /** A World goes when its last session has ended; its versions stay. */
  async #retire(world: string, lives: readonly Promise<boolean>[]): Promise<void> {
    await Promise.all(lives);
    const { board } = this.#options;
    await this.#deleteWorld(world);
    await board.until(() => (board.world(world) === undefined ? true : undefined), {
      what: `World ${world} gone`,
      timeoutMs: 20 * 60_000,
    });
  }

  /** The only place where Worlds are deleted: whoever takes its versions along is told of in the ledger first. */
  async #deleteWorld(world: string): Promise<void> {
    const { board, ground, ledger, witness } = this.#options;
    if (this.#takers.has(world)) {
      ledger.note({ kind: "released", world });
      await witness.look(world);
    }
    const ref = { name: world, namespace: ground.namespace };
    await persistently((signal) => board.worlds.delete(ref, { signal })).catch(unlessGone);
  }

  /** Whether it came to its end; why not is a failure of the run. */
  async #followed(life: Promise<void>): Promise<boolean> {
    try {
      await life;
      return true;
    } catch (error) {
      if (!(error instanceof BoardClosed)) this.#failures.push(error);
      return false;
    }
  }

  /** Whether the life was over in time; one that was not goes on by itself, and the settling waits for it. */
  async #withPatience(life: Promise<boolean>): Promise<boolean> {
    const patience = Promise.withResolvers<boolean>();
    const timer = setTimeout(() => patience.resolve(false), PATIENCE_MS);
    try {
      return await Promise.race([life, patience.promise]);
    } finally {
      clearTimeout(timer);
    }
  }

  async #createWorld(): Promise<string> {
    const { board, ground, ledger } = this.#options;
    const name = `w${++this.#worlds}`;
    const ref = { name, namespace: ground.namespace };
    // Every third World lets old versions go, every sixth takes them with it in the end.
    const keepVersions = this.#worlds % 3 === 0 ? 3 : 0;
    const deletionPolicy = this.#worlds % 6 === 5 ? "Delete" : "Retain";
    if (deletionPolicy === "Delete") this.#takers.add(name);
    const world = await createOnce(
      () =>
        board.worlds.create(
          {
            apiVersion: "agentworlds.dev/v1alpha1",
            kind: "World",
            metadata: ref,
            spec: { from: { image: ground.image }, retention: { keepVersions }, deletionPolicy },
          },
          { namespace: ref.namespace, signal: AbortSignal.timeout(30_000) },
        ),
      () => board.worlds.get(ref, { signal: AbortSignal.timeout(30_000) }),
    );
    ledger.note({ kind: "world", world: name, uid: world.metadata.uid ?? "", keepVersions });
    return name;
  }

  /** One Sandbox from creation to its removal: one boot or two. */
  async #live(world: string, random: Random): Promise<void> {
    const { board, ledger } = this.#options;
    const end = random.pick(ENDS);
    const wakes = (end === "mode" || end === "deadline") && random.next() < 0.5;
    const snapshots = random.next() < 0.35;
    const session = await this.#open(world, { ttlSeconds: end === "deadline" ? SHORT_TTL_S : LONG_TTL_S });
    for (let boot = 1; boot <= (wakes ? 2 : 1); boot++) {
      if (boot > 1 && !(await this.#wake(session, boot))) break;
      if ((await this.#ready(session, boot)) === undefined) break;
      await this.#write(session, boot);
      if (snapshots) await this.#snapshot(session, boot);
      const touches = random.next() < 0.3;
      if (touches && end !== "deadline") await touch(board, session.ref, LONG_TTL_S * 1_000);
      await this.#write(session, boot);
      if (end === "discard") ledger.note({ kind: "discarded", sandbox: session.uid, boot });
      await this.#end(session, end);
      await this.#ended(session, boot);
    }
    await remove(board, session.ref);
    await this.#gone(session);
  }

  async #open(world: string, spec: { ttlSeconds: number }): Promise<Session> {
    const { board, ground, ledger } = this.#options;
    this.#lives += 1;
    const ref = { name: `${world}-s${this.#lives}`, namespace: ground.namespace };
    const object = {
      apiVersion: "agentworlds.dev/v1alpha1",
      kind: "Sandbox",
      metadata: ref,
      spec: { world: { name: world }, ...spec },
    };
    const at = Date.now();
    const created = await createOnce(
      () => board.sandboxes.create(object, { namespace: ref.namespace, signal: AbortSignal.timeout(30_000) }),
      () => board.sandboxes.get(ref, { signal: AbortSignal.timeout(30_000) }),
    );
    const uid = created.metadata.uid ?? "";
    ledger.note({ kind: "wanted", world, sandbox: uid, boot: 1, since: at });
    await board.until(() => board.sandbox(uid), { what: `${ref.name} on the board`, timeoutMs: 180_000 });
    return { world, uid, ref };
  }

  /** Says whether there is a Sandbox to wake. */
  async #wake(session: Session, boot: number): Promise<boolean> {
    const { board, ledger } = this.#options;
    const sandbox = board.sandbox(session.uid);
    if (sandbox === undefined || sandbox.status.closed !== undefined) return false;
    ledger.note({ kind: "wanted", world: session.world, sandbox: session.uid, boot, since: Date.now() });
    if (sandbox.spec.mode === "Hibernated") await setMode(board, session.ref, "Running");
    else await ask(board, session.ref, { verb: "Touch" });
    return true;
  }

  /** The Sandbox once it is Ready in this boot, looked into; undefined when the boot is over before that. */
  async #ready(session: Session, boot: number): Promise<Sandbox | undefined> {
    const { board, ledger } = this.#options;
    const seen = await board.until(
      () => {
        const sandbox = board.sandbox(session.uid);
        const isReady = sandbox?.status.conditions?.some(({ type, status }) => type === "Ready" && status === "True");
        if (sandbox && isReady && sandbox.status.boot === boot) return sandbox;
        return isOver(sandbox, boot) ? "over" : undefined;
      },
      { what: `${session.ref.name} Ready in boot ${boot}`, timeoutMs: 20 * 60_000 },
    );
    if (seen === "over") return undefined;
    const id = seen.status.compute?.id;
    const digest = id === undefined ? undefined : await this.#imageOf(id);
    if (digest === undefined) return seen;
    const files = await this.#look(id ?? "");
    const booted = { kind: "booted", world: session.world, sandbox: session.uid, boot, digest } as const;
    ledger.note(files === undefined ? booted : { ...booted, files });
    return seen;
  }

  /** Digest of the image that the container is made of, by the engine's own word; undefined when it is gone. */
  async #imageOf(id: string): Promise<string | undefined> {
    try {
      const answer = await callEngine(this.#options.ground.engine.dockerHost, {
        path: `/containers/${id}/json`,
        signal: AbortSignal.timeout(EXEC_MS),
      });
      return /@(sha256:[0-9a-f]{64})$/.exec(JSON.parse(answer.text).Config?.Image ?? "")?.[1];
    } catch {
      // The engine is away or paused: a fault of this run. What was not seen is not in the ledger.
      return undefined;
    }
  }

  async #look(id: string): Promise<Files | undefined> {
    const listed = await this.#shell(id, "cd /work 2>/dev/null && sha256sum * || true");
    if (listed === undefined) return undefined;
    return Object.fromEntries(sums(listed).map(({ path, sha256 }) => [path, sha256]));
  }

  /** Writes some numbered files; what is not acknowledged is not in the ledger. */
  async #write(session: Session, boot: number): Promise<void> {
    const id = this.#options.board.sandbox(session.uid)?.status.compute?.id;
    if (id === undefined) return;
    const name = `${session.ref.name}-${boot}-${randomUUID().slice(0, 8)}`;
    const script = [
      "mkdir -p /work && cd /work",
      `for n in 1 2 3; do head -c $((n * 3000)) /dev/urandom > ${name}.$n || exit 1; done`,
      `sha256sum ${name}.*`,
    ].join("\n");
    const output = await this.#shell(id, script);
    for (const { path, sha256 } of sums(output ?? "")) {
      const { world, uid: sandbox } = session;
      this.#options.ledger.note({ kind: "written", world, sandbox, boot, path, sha256 });
    }
  }

  /** Output of a command that ended well; undefined when it did not, or when that was not heard of. */
  async #shell(id: string, script: string): Promise<string | undefined> {
    try {
      const request = { command: ["sh", "-c", script], timeoutMs: EXEC_MS };
      const record = await this.#driver.exec(id, request, AbortSignal.timeout(EXEC_MS * 3));
      return record.exitCode === 0 ? new TextDecoder().decode(record.stdout) : undefined;
    } catch (error) {
      // The container ended, is frozen, or its host is away.
      if (error instanceof RuntimeError || (error instanceof Error && error.name === "TimeoutError")) return undefined;
      throw error;
    }
  }

  async #snapshot(session: Session, boot: number): Promise<void> {
    const { board, ledger } = this.#options;
    const request = await ask(board, session.ref, { verb: "Snapshot" }, (id) =>
      ledger.note({ kind: "snapshotAsked", sandbox: session.uid, boot, request: id }),
    );
    await board.until(
      () => {
        const sandbox = board.sandbox(session.uid);
        const answered = sandbox?.status.requests?.some(({ id, result }) => id === request && result !== undefined);
        return answered || isOver(sandbox, boot) ? true : undefined;
      },
      { what: `the snapshot of ${session.ref.name}`, timeoutMs: 20 * 60_000 },
    );
  }

  async #end(session: Session, end: End): Promise<void> {
    const { board } = this.#options;
    switch (end) {
      case "deadline":
        return;
      case "close":
        await ask(board, session.ref, { verb: "Close" });
        return;
      case "discard":
        await ask(board, session.ref, { verb: "Close", parameters: { discard: "Discard" } });
        return;
      case "delete":
        return remove(board, session.ref);
      case "mode":
        return setMode(board, session.ref, "Hibernated");
    }
  }

  /** Waits until the boot is over and notes how. */
  async #ended(session: Session, boot: number): Promise<void> {
    const { board, ledger } = this.#options;
    const last = await board.until(
      () => {
        const sandbox = board.sandbox(session.uid);
        return isOver(sandbox, boot) ? { sandbox } : undefined;
      },
      { what: `the end of boot ${boot} of ${session.ref.name}`, timeoutMs: 20 * 60_000 },
    );
    if (last.sandbox === undefined) await this.#noteEvents(session, boot);
    const outcome = last.sandbox?.status.lastEnding?.outcome ?? "Gone";
    // What was acknowledged with the end must be in the ledger before the next session is wanted.
    await board.fresh();
    ledger.note({ kind: "ended", sandbox: session.uid, boot, outcome });
  }

  /** Where the object is gone, what was said of it is in its Events. */
  async #noteEvents(session: Session, boot: number): Promise<void> {
    const { board, ledger, ground } = this.#options;
    const path = `/apis/events.k8s.io/v1/namespaces/${ground.namespace}/events`;
    const query = { fieldSelector: `regarding.uid=${session.uid}` };
    const { items } = await persistently((signal) =>
      board.kube.request<{ items: { reason: string }[] }>("GET", path, { query, signal }),
    );
    const said = items.find(({ reason }) => reason === "ContainerGone");
    if (said === undefined) return;
    ledger.note({ kind: "confessed", sandbox: session.uid, boot, condition: "Event", reason: said.reason });
  }

  async #gone({ uid, ref }: Session): Promise<void> {
    const { board } = this.#options;
    await board.until(() => (board.sandbox(uid) === undefined ? true : undefined), {
      what: `${ref.name} gone`,
      timeoutMs: 20 * 60_000,
    });
  }
}

/** Nothing of this boot runs any more, or there is no such Sandbox. */
function isOver(sandbox: Sandbox | undefined, boot: number): boolean {
  if (sandbox === undefined) return true;
  const { status } = sandbox;
  if (status.closed !== undefined) return status.compute === undefined;
  return status.compute === undefined && status.lastEnding?.boot === boot;
}

/** Lines of sha256sum. */
function sums(output: string): { path: string; sha256: string }[] {
  return output.split("\n").flatMap((line) => {
    const match = /^([0-9a-f]{64}) {2}(\S+)$/.exec(line);
    return match?.[1] === undefined || match[2] === undefined ? [] : [{ sha256: match[1], path: match[2] }];
  });
}
