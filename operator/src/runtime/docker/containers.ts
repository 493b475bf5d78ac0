import { z } from "zod";
import type { ListedCompute, ObservedCompute } from "../contract.ts";
import { isStatus, tolerate } from "./engine-errors.ts";
import { ENGINE_LABEL, IMAGE_LABEL, INSTALLATION_LABEL, ownerOf } from "./labels.ts";
import type { EngineTransport } from "./transport.ts";

const nullableLabels = z
  .record(z.string(), z.string())
  .nullish()
  .transform((labels) => labels ?? {});

const inspected = z.object({
  Id: z.string(),
  Image: z.string(),
  Config: z.object({ Labels: nullableLabels }),
  State: z.object({
    Status: z.string(),
    Pid: z.number().int().optional(),
    ExitCode: z.number().int(),
    OOMKilled: z.boolean(),
    StartedAt: z.string(),
    FinishedAt: z.string(),
  }),
});
export type InspectedContainer = z.infer<typeof inspected>;

const created = z.object({ Id: z.string() });

const listed = z.array(
  z.object({
    Id: z.string(),
    Names: z.array(z.string()).nullish(),
    State: z.string(),
    Image: z.string(),
    ImageID: z.string(),
    Labels: nullableLabels,
  }),
);

/** Starting, stopping and removing can wait for disks and namespaces. */
const SLOW_MS = 90_000;

/** Container calls of the Engine API, one method each. `id` is an Id, or a name that the engine resolves. */
export class Containers {
  readonly #transport: EngineTransport;

  constructor(transport: EngineTransport) {
    this.#transport = transport;
  }

  /** The new container's Id. Refused with 409 when the name is taken, with 404 when the image is not there. */
  async create(name: string, config: unknown, signal: AbortSignal): Promise<string> {
    const call = { method: "POST", path: "/containers/create", query: { name }, json: config, ms: SLOW_MS } as const;
    return (await this.#transport.json(created, call, signal)).Id;
  }

  async inspect(id: string, signal: AbortSignal): Promise<InspectedContainer | undefined> {
    return await this.#transport
      .json(inspected, { method: "GET", path: `/containers/${id}/json` }, signal)
      .catch(tolerate(404));
  }

  /** 304 (running already) is not an error status, so a repeated start succeeds. */
  async start(id: string, signal: AbortSignal): Promise<void> {
    await this.#transport.done({ method: "POST", path: `/containers/${id}/start`, ms: SLOW_MS }, signal);
  }

  /** The filesystem as a tar, mounts left out. */
  export(id: string, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    return this.#transport.stream({ method: "GET", path: `/containers/${id}/export`, ms: SLOW_MS }, signal);
  }

  async pause(id: string, signal: AbortSignal): Promise<void> {
    await this.#repeatable(`/containers/${id}/pause`, "already paused", signal);
  }

  async unpause(id: string, signal: AbortSignal): Promise<void> {
    await this.#repeatable(`/containers/${id}/unpause`, "is not paused", signal);
  }

  /** Pauses and thaws, whatever the engine believes: afterwards belief and truth agree. */
  async cycle(id: string, signal: AbortSignal): Promise<void> {
    // One of the two is refused when the belief is wrong; the other one puts it right.
    await this.unpause(id, signal).catch(tolerate(500));
    await this.pause(id, signal).catch(tolerate(500));
    await this.unpause(id, signal).catch(tolerate(500));
  }

  /** PID 1 ignores polite signals, so a stop is a kill. One that does not run is a success. */
  async kill(id: string, signal: AbortSignal): Promise<void> {
    await this.#repeatable(`/containers/${id}/kill`, "is not running", signal);
  }

  async waitNotRunning(id: string, signal: AbortSignal): Promise<void> {
    await this.#transport.done({ method: "POST", path: `/containers/${id}/wait`, ms: SLOW_MS }, signal);
  }

  /** With its anonymous volumes. Absent is a success; a removal already in progress is waited for. */
  async remove(id: string, signal: AbortSignal): Promise<void> {
    const query = { force: "true", v: "true" };
    try {
      await this.#transport.done({ method: "DELETE", path: `/containers/${id}`, query, ms: SLOW_MS }, signal);
    } catch (error) {
      if (isStatus(error, 404)) return;
      if (!isStatus(error, 409)) throw error;
      const path = `/containers/${id}/wait`;
      await this.#transport
        .done({ method: "POST", path, query: { condition: "removed" }, ms: SLOW_MS }, signal)
        .catch(tolerate(404));
    }
  }

  async list(installation: string, signal: AbortSignal): Promise<ListedCompute[]> {
    const containers = await this.#list({ label: [`${INSTALLATION_LABEL}=${installation}`] }, signal);
    return containers.flatMap((container) => {
      const owner = ownerOf(container.Labels);
      const name = container.Names?.[0]?.replace(/^\//, "");
      if (owner === undefined || name === undefined) return [];
      // An engine that has lost the name says the image's id.
      const image = container.Image.includes("@") ? container.Image : container.Labels[IMAGE_LABEL];
      return [{ id: name, owner, state: stateOf(container.State), ...(image === undefined ? {} : { image }) }];
    });
  }

  /** Ids of the engines that an installation's containers say they were made on. */
  async engines(installation: string, signal: AbortSignal): Promise<string[]> {
    const containers = await this.#list({ label: [`${INSTALLATION_LABEL}=${installation}`] }, signal);
    return containers.flatMap(({ Labels }) => Labels[ENGINE_LABEL] ?? []);
  }

  /** Ids of the images that any container on the host uses, running or not. */
  async usedImages(signal: AbortSignal): Promise<ReadonlySet<string>> {
    return new Set((await this.#list({}, signal)).map((container) => container.ImageID));
  }

  async #list(filters: Record<string, string[]>, signal: AbortSignal): Promise<z.infer<typeof listed>> {
    const query = { all: "true", filters: JSON.stringify(filters) };
    return await this.#transport.json(listed, { method: "GET", path: "/containers/json", query }, signal);
  }

  /** Engines answer a repetition with 409, older ones with 500, and the same words. */
  async #repeatable(path: string, alreadyWords: string, signal: AbortSignal): Promise<void> {
    await this.#transport.done({ method: "POST", path, ms: SLOW_MS }, signal).catch((error: unknown) => {
      if (isStatus(error, 409, 500) && error instanceof Error && error.message.includes(alreadyWords)) return;
      throw error;
    });
  }
}

/** The engine's "never". */
const ZERO_TIME = "0001-01-01T00:00:00Z";
const timeOf = (text: string): string | undefined => (text === ZERO_TIME || text === "" ? undefined : text);

/** Engines know seven words; a container that is being removed is as good as dead. */
function stateOf(status: string): Exclude<ObservedCompute["state"], "Absent"> {
  switch (status) {
    case "created":
      return "Created";
    case "running":
    case "restarting":
      return "Running";
    case "paused":
      return "Frozen";
    default:
      return "Exited";
  }
}

/** What an inspection says, in the words of the contract. */
export function observe(container: InspectedContainer | undefined): ObservedCompute {
  if (container === undefined) return { state: "Absent" };
  const { Status, Pid, ExitCode, OOMKilled, StartedAt, FinishedAt } = container.State;
  const state = stateOf(Status);
  if (state !== "Exited") return { state, startedAt: timeOf(StartedAt), ...(Pid ? { pid: Pid } : {}) };
  return { state, exitCode: ExitCode, outOfMemory: OOMKilled, finishedAt: timeOf(FinishedAt) };
}
