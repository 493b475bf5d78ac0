import type { Duplex } from "node:stream";
import type { Platform } from "@agentworlds/crds";
import { type Clock, systemClock } from "../../reconciler/clock.ts";
import { Turns } from "../../reconciler/turns.ts";
import { wordsOf } from "../../reconciler/words-of.ts";
import type { RegistryLogin } from "../../registry/contract.ts";
import { commandHeader, DEFAULT_EXEC_TIMEOUT_MS } from "../command-header.ts";
import {
  type CommittedImage,
  type ComputeOwner,
  type ComputeSpec,
  computeName,
  type ExecRecord,
  type ExecRequest,
  type FileWrite,
  type HostFacts,
  type ListedCapture,
  type ListedCompute,
  type ObservedCompute,
  type RuntimeDriver,
} from "../contract.ts";
import { isRuntimeError, RuntimeError } from "../errors.ts";
import type { HelperBinary } from "../helper.ts";
import { type HelperChannel, openFile, runCommand, startSession, storeFile, syncFiles } from "../helper-session.ts";
import { type EngineAddress, type EngineTls, parseEngineAddress } from "./address.ts";
import { hostFacts, hostInfo } from "./capabilities.ts";
import { capturesOf } from "./captures.ts";
import { commitContainer } from "./commit.ts";
import { Containers, observe } from "./containers.ts";
import { withoutCredentials } from "./credentials.ts";
import { containerNotFound, EngineRefused, refusedAs, tolerate } from "./engine-errors.ts";
import { engineId } from "./engine-marker.ts";
import {
  attachExec,
  createHelperExec,
  execStateOf,
  type HelperCommand,
  helperChannel,
  unsettledExecs,
} from "./exec.ts";
import { type ExecStart, ExecStarts } from "./exec-starts.ts";
import { Images } from "./images.ts";
import { ownerOf } from "./labels.ts";
import { OwnContainers } from "./own-containers.ts";
import { PushRetried } from "./progress.ts";
import { Provisioner } from "./provision.ts";
import { choosePruned } from "./prune.ts";
import { Remembered } from "./remembered.ts";
import { EngineTransport } from "./transport.ts";
import { WarmHelpers } from "./warm-helpers.ts";
import { wholeTar } from "./whole-tar.ts";

export interface DockerDriverOptions {
  /** Id of this installation of the operator: containers without its label are never acted on. */
  readonly installation: string;
  /** `unix:///path` or `tcp://host:port`. */
  readonly endpoint: string;
  /** Client certificate and CA of a TLS endpoint. */
  readonly tls?: EngineTls;
  /** The helper for the host's platform, asked for before the first container is made. */
  readonly helper: (platform: Platform, signal: AbortSignal) => Promise<HelperBinary>;
  /** Default: the machine's. */
  readonly clock?: Clock;
  /**
   * Asked before a process is started in a container, in a program that is not the one that freezes it: whether that one may
   * be about to. Throws where nothing may run in the container any more. Default: this program freezes.
   */
  readonly mayStart?: (owner: ComputeOwner, signal: AbortSignal) => Promise<"Now" | "NotYet">;
}

/** A driver for one host. Connects when first used. Throws `HostRefused` for an endpoint that is not one. */
export function createDockerDriver(options: DockerDriverOptions): RuntimeDriver {
  return new DockerDriver(new EngineTransport(readEndpoint(options)), options);
}

function readEndpoint({ endpoint, tls }: DockerDriverOptions): EngineAddress {
  try {
    return parseEngineAddress(endpoint, tls);
  } catch (cause) {
    throw new RuntimeError("HostRefused", wordsOf(cause), { cause });
  }
}

/** What an exec may take beyond its own timeout: the helper's start, the kill and the last bytes. */
const EXEC_GRACE_MS = 20_000;
/** The helper answers at once; a busy host may be slow to start it. */
const SESSION_SILENCE_MS = 30_000;
/** Longest silence while a file moves. */
const FILE_SILENCE_MS = 60_000;
/** A slow disk may have much to take. */
const SYNC_SILENCE_MS = 180_000;
/** Reading the engine's marker, or making it: four short calls. */
const IDENTITY_MS = 60_000;
/** How often, and with what pause, a container is looked at whose connection was lost: 1 s in all. */
const DEATH_ATTEMPTS = 20;
const DEATH_PAUSE_MS = 50;

/** How late an engine's own event was seen to come, with a margin; and how often a false pause is cleared. */
const LATE_EVENT_MS = 100;
const THAW_ATTEMPTS = 5;

/** A host with a Docker engine. Compute ids are container names, known before the create. */
class DockerDriver implements RuntimeDriver {
  readonly #transport: EngineTransport;
  readonly #containers: Containers;
  readonly #own: OwnContainers;
  readonly #installation: string;
  readonly #images: Images;
  readonly #provisioner: Provisioner;
  readonly #clock: Clock;
  readonly #starts: ExecStarts;
  readonly #identity: Remembered<string>;
  readonly #warm: WarmHelpers;
  /** Commits of one engine at the same time can fail on each other (moby#44450): one after the other. */
  readonly #commits = new Turns();

  constructor(
    transport: EngineTransport,
    { installation, helper, mayStart, clock = systemClock }: DockerDriverOptions,
  ) {
    this.#clock = clock;
    this.#installation = installation;
    this.#transport = transport;
    this.#starts = new ExecStarts(
      {
        unsettled: (container, signal) => unsettledExecs(transport, container, signal),
        stateOf: (exec, signal) => execStateOf(transport, exec, signal),
      },
      clock,
      mayStart && (async (container, signal) => mayStart(await this.#ownerIn(container, signal), signal)),
    );
    this.#warm = new WarmHelpers({
      open: (container, signal) => this.#start({ container, command: "exec" }, signal),
    });
    this.#containers = new Containers(transport);
    this.#own = new OwnContainers(this.#containers, installation);
    this.#images = new Images(transport);
    const marked = { transport, containers: this.#containers, images: this.#images, installation };
    this.#identity = new Remembered((signal) => engineId(marked, signal), IDENTITY_MS);
    // Another connection may lead to another engine.
    transport.onConnection(() => this.#identity.forget());
    this.#provisioner = new Provisioner({
      transport,
      containers: this.#containers,
      images: this.#images,
      helper,
      clock,
      engine: (signal) => this.#identity.get(signal),
    });
  }

  async probe(signal: AbortSignal): Promise<HostFacts> {
    const info = this.#transport.json(hostInfo, { method: "GET", path: "/info" }, signal);
    return hostFacts(await refusedAs("HostRefused", info));
  }

  async identity(signal: AbortSignal): Promise<string> {
    return await refusedAs("HostRefused", this.#identity.get(signal));
  }

  async pull(image: string, login: RegistryLogin | undefined, signal: AbortSignal): Promise<void> {
    await this.#provisioner.present(image, login, signal);
  }

  async create(spec: ComputeSpec, signal: AbortSignal): Promise<string> {
    const { installation } = spec.owner;
    if (installation !== this.#installation)
      throw new TypeError(`this driver makes containers of ${this.#installation}, not of ${installation}`);
    const { containerId, isRunning, user } = await this.#provisioner.provision(spec, signal);
    const id = computeName(spec.owner);
    this.#own.remember(id, containerId);
    // One that has ended already, or was frozen by an earlier try, is returned as it is: the caller inspects.
    if (isRunning) {
      const call = { id, command: "session", silenceMs: SESSION_SILENCE_MS } as const;
      await this.#withHelper(call, (channel) => startSession(channel, { user }), signal);
      this.#warm.warm(containerId);
    }
    return id;
  }

  async inspect(id: string, signal: AbortSignal): Promise<ObservedCompute> {
    return observe(await refusedAs("HostRefused", this.#own.inspect(id, signal)));
  }

  async ownerOf(id: string, signal: AbortSignal): Promise<ComputeOwner | undefined> {
    const container = await refusedAs("HostRefused", this.#own.inspect(id, signal));
    return container && ownerOf(container.Config.Labels);
  }

  async #ownerIn(container: string, signal: AbortSignal): Promise<ComputeOwner> {
    const found = await this.#containers.inspect(container, signal);
    const owner = found && ownerOf(found.Config.Labels);
    if (owner === undefined) throw containerNotFound(container);
    return owner;
  }

  async exec(id: string, request: ExecRequest, signal: AbortSignal): Promise<ExecRecord> {
    // One that cannot be passed is refused before a helper is taken or started for it.
    commandHeader(request);
    const silenceMs = (request.timeoutMs ?? DEFAULT_EXEC_TIMEOUT_MS) + EXEC_GRACE_MS;
    const call = { id, command: "exec", silenceMs } as const;
    const record = await this.#withHelper(call, (channel) => runCommand(channel, request), signal);
    // Where one command was run the next one is near.
    const container = this.#own.known(id);
    if (container !== undefined) this.#warm.warm(container);
    return record;
  }

  async readFile(
    id: string,
    path: Uint8Array,
    signal: AbortSignal,
  ): Promise<{ size: number; content: AsyncIterable<Uint8Array> }> {
    const call = { id, command: "get", silenceMs: FILE_SILENCE_MS } as const;
    return await this.#withHelper(call, (channel) => openFile(channel, path), signal);
  }

  async writeFile(id: string, write: FileWrite, signal: AbortSignal): Promise<void> {
    const call = { id, command: "put", silenceMs: FILE_SILENCE_MS } as const;
    await this.#withHelper(call, (channel) => storeFile(channel, write), signal);
  }

  async sync(id: string, signal: AbortSignal): Promise<void> {
    const call = { id, command: "sync", silenceMs: SYNC_SILENCE_MS } as const;
    await this.#withHelper(call, syncFiles, signal);
  }

  async freeze(id: string, signal: AbortSignal): Promise<void> {
    this.#dropWarm(id);
    const pause = (container: string) =>
      this.#starts.exclude(container, (own) => this.#containers.pause(container, own), signal);
    const paused = this.#own.act(id, pause, signal);
    await this.#onContainer(id, paused, signal);
  }

  async thaw(id: string, signal: AbortSignal): Promise<void> {
    const thaw = (container: string) => this.#containers.unpause(container, signal);
    await refusedAs("HostRefused", this.#own.act(id, thaw, signal), id);
    for (let attempt = 1; await this.#saysFrozenAgain(id, signal); attempt++) {
      if (attempt === THAW_ATTEMPTS) throw new RuntimeError("HostRefused", `container ${id} does not thaw`);
      const cycle = (container: string) =>
        this.#starts.exclude(container, (own) => this.#containers.cycle(container, own), signal);
      await refusedAs("HostRefused", this.#own.act(id, cycle, signal), id);
    }
  }

  /**
   * The engine learns of a pause twice, from the call and from the runtime's event, and the event may come after the thaw: then
   * it calls a running container paused and refuses every command (seen on 20.10). The second look is for that event.
   */
  async #saysFrozenAgain(id: string, signal: AbortSignal): Promise<boolean> {
    for (let look = 0; look < 2; look++) {
      if ((await this.inspect(id, signal)).state === "Frozen") return true;
      if (look === 0) await this.#clock.sleep(LATE_EVENT_MS, signal);
    }
    return false;
  }

  async commit(id: string, localName: string, signal: AbortSignal): Promise<CommittedImage> {
    const container = await refusedAs("CommitFailed", this.#own.inspect(id, signal));
    if (container === undefined) throw containerNotFound(id);
    const request = { containerId: container.Id, localName };
    const commit = () => commitContainer(this.#images, request, signal);
    return await refusedAs("CommitFailed", this.#commits.take(commit, signal));
  }

  async push(
    localName: string,
    target: { repository: string; tag: string; login: RegistryLogin | undefined },
    signal: AbortSignal,
  ): Promise<void> {
    const name = { repository: target.repository, reference: target.tag };
    const remote = `${target.repository}:${target.tag}`;
    try {
      await this.#images.tag(localName, name, signal);
      await this.#images.push(name, target.login, signal);
    } catch (error) {
      // What went wrong with the push is what the caller must hear; a name that stays is pruned like any version's.
      await Promise.allSettled([this.#images.remove(remote, signal)]);
      if (!(error instanceof EngineRefused) && !(error instanceof PushRetried)) throw error;
      const words = withoutCredentials(error.message, target.login);
      throw new RuntimeError("PushFailed", `${remote} was not pushed: ${words}`);
    }
    await refusedAs("HostRefused", this.#images.remove(remote, signal));
  }

  async forgetCommit(localName: string, signal: AbortSignal): Promise<void> {
    await refusedAs("HostRefused", this.#images.remove(localName, signal));
  }

  async exportTar(id: string, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>> {
    const container = await refusedAs("HostRefused", this.#own.inspect(id, signal));
    if (container === undefined) throw containerNotFound(id);
    return wholeTar(this.#containers.export(container.Id, signal));
  }

  async stop(id: string, signal: AbortSignal): Promise<void> {
    this.#dropWarm(id);
    const stopped = this.#own.act(
      id,
      async (container) => {
        await this.#containers.kill(container, signal);
        await this.#containers.waitNotRunning(container, signal);
      },
      signal,
    );
    await refusedAs("HostRefused", stopped, id);
  }

  async remove(id: string, signal: AbortSignal): Promise<void> {
    this.#dropWarm(id);
    const container = await refusedAs("HostRefused", this.#own.inspect(id, signal));
    if (container === undefined) return;
    await refusedAs("HostRefused", this.#containers.remove(container.Id, signal));
    this.#own.forget(id);
  }

  async list(installation: string, signal: AbortSignal): Promise<ListedCompute[]> {
    return await refusedAs("HostRefused", this.#containers.list(installation, signal));
  }

  async listCaptures(installation: string, signal: AbortSignal): Promise<ListedCapture[]> {
    return capturesOf(await refusedAs("HostRefused", this.#images.listCommits(installation, signal)));
  }

  async pruneImages(options: { repositoryPrefix: string; keep: number }, signal: AbortSignal): Promise<string[]> {
    // Images first: one that comes into use after that is refused by the engine.
    const images = await refusedAs("HostRefused", this.#images.list(signal));
    const used = await refusedAs("HostRefused", this.#containers.usedImages(signal));
    const removed: string[] = [];
    for (const name of choosePruned(images, { ...options, used })) {
      const gone = this.#images.remove(name, signal).then(() => true, tolerate(409));
      if ((await refusedAs("HostRefused", gone)) === true) removed.push(name);
    }
    return removed;
  }

  async close(patience?: AbortSignal): Promise<void> {
    this.#warm.close();
    await this.#transport.close(patience);
  }

  #dropWarm(id: string): void {
    const container = this.#own.known(id);
    if (container !== undefined) this.#warm.drop(container);
  }

  async #withHelper<T>(
    { id, ...call }: { id: string; command: HelperCommand; silenceMs: number },
    talk: (channel: HelperChannel) => Promise<T>,
    signal: AbortSignal,
  ): Promise<T> {
    const conversation = this.#connect(id, call.command, signal).then((socket) =>
      talk(helperChannel(socket, { container: id, ...call }, signal)),
    );
    return await this.#onContainer(id, conversation, signal);
  }

  /** For a command, the helper that waits there already, if one does; else a new one. */
  async #connect(id: string, command: HelperCommand, signal: AbortSignal): Promise<Duplex> {
    const start = async (container: string) => {
      const waiting = command === "exec" ? this.#warm.take(container) : undefined;
      return waiting ?? (await this.#start({ container, command }, signal));
    };
    return await this.#own.act(id, start, signal);
  }

  #start(call: { container: string; command: HelperCommand }, signal: AbortSignal): Promise<Duplex> {
    const start: ExecStart<Duplex> = {
      create: (own) => createHelperExec(this.#transport, call, own),
      attach: (exec, own) => attachExec(this.#transport, exec, own),
      discard: (socket) => socket.destroy(),
    };
    return this.#starts.start(call.container, start, signal);
  }

  /** An effect on a running container. When it fails, an inspection says whether that is the container's state. */
  async #onContainer<T>(id: string, effect: Promise<T>, signal: AbortSignal): Promise<T> {
    try {
      return await effect;
    } catch (error) {
      signal.throwIfAborted();
      const isAboutState =
        error instanceof EngineRefused ||
        isRuntimeError(error, "ExecConnectionLost") ||
        isRuntimeError(error, "HostUnreachable");
      throw isAboutState ? await this.#explain(id, error, signal) : error;
    }
  }

  /** A lost connection is seen before the engine has noted the death that caused it. */
  async #settledState(id: string, error: unknown, signal: AbortSignal): Promise<ObservedCompute> {
    for (let attempt = 1; ; attempt++) {
      const compute = await this.inspect(id, signal);
      const mayBeDying = compute.state === "Running" && isRuntimeError(error, "ExecConnectionLost");
      if (!mayBeDying || attempt === DEATH_ATTEMPTS) return compute;
      await this.#clock.sleep(DEATH_PAUSE_MS, signal);
    }
  }

  async #explain(id: string, error: unknown, signal: AbortSignal): Promise<unknown> {
    // Where even the inspection fails, the first failure says more.
    const compute = await this.#settledState(id, error, signal).catch(() => undefined);
    switch (compute?.state) {
      case "Absent":
        return containerNotFound(id);
      case "Frozen":
        return new RuntimeError("ComputeNotRunning", `container ${id} is frozen`, { cause: error });
      case "Created":
        return new RuntimeError("ComputeNotRunning", `container ${id} was never started`, { cause: error });
      case "Exited":
        return new RuntimeError("ComputeNotRunning", `container ${id} has ended`, { cause: error });
      default:
        // Frozen when it was asked, and thawed since: the command was not begun.
        if (error instanceof EngineRefused && error.status === 409 && /\bis paused\b/.test(error.message))
          return new RuntimeError("ComputeNotRunning", `container ${id} was frozen`, { cause: error });
        return error instanceof EngineRefused
          ? new RuntimeError("HostRefused", wordsOf(error), { cause: error })
          : error;
    }
  }
}
