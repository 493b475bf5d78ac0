import type { Readable } from "node:stream";
import { z } from "zod";
import type { RegistryLogin } from "../../registry/contract.ts";
import { registryAuth } from "./credentials.ts";
import { tolerate } from "./engine-errors.ts";
import { type ImageReference, parseImageReference, registryOf } from "./image-reference.ts";
import { COMMIT_OF_LABEL, INSTALLATION_LABEL } from "./labels.ts";
import { followProgress, refuseSecondRetry } from "./progress.ts";
import type { EngineTransport } from "./transport.ts";

const inspectedImage = z.object({
  Id: z.string(),
  Config: z
    .object({
      User: z.string().optional(),
      Labels: z.record(z.string(), z.string()).nullish(),
    })
    .nullish(),
  RootFS: z.object({ Layers: z.array(z.string()).nullish() }).optional(),
});
export type InspectedImage = z.infer<typeof inspectedImage>;

const listedImages = z.array(
  z.object({
    Id: z.string(),
    Created: z.number(),
    RepoTags: z.array(z.string()).nullish(),
    RepoDigests: z.array(z.string()).nullish(),
    Labels: z.record(z.string(), z.string()).nullish(),
  }),
);
export type ListedImage = z.infer<typeof listedImages>[number];

const committed = z.object({ Id: z.string() });

/** A commit reads and compresses everything the session wrote: 15 s for 200,000 small files (layers.md §2.2). */
export const COMMIT_MS = 20 * 60_000;
/** Longest silence of a pull or push; engines report progress several times a second, except while they extract. */
const PROGRESS_SILENCE_MS = 5 * 60_000;

/** Image calls of the Engine API, one method each. Names hold slashes and colons, which paths take as they are. */
export class Images {
  readonly #transport: EngineTransport;

  constructor(transport: EngineTransport) {
    this.#transport = transport;
  }

  async inspect(name: string, signal: AbortSignal): Promise<InspectedImage | undefined> {
    return await this.#transport
      .json(inspectedImage, { method: "GET", path: `/images/${name}/json` }, signal)
      .catch(tolerate(404));
  }

  async pull(image: string, login: RegistryLogin | undefined, signal: AbortSignal): Promise<void> {
    const { repository, reference } = parseImageReference(image);
    const query = { fromImage: repository, tag: reference };
    const headers = registryAuth(login, registryOf(repository));
    await this.#follow({ path: "/images/create", query, headers }, signal);
  }

  /** An image made of a tar of its files, with one label. */
  async import(
    name: ImageReference,
    { tar, label }: { tar: Uint8Array | Readable; label: readonly [key: string, value: string] },
    signal: AbortSignal,
  ): Promise<void> {
    const changes = `LABEL ${label[0]}=${label[1]}`;
    const query = { fromSrc: "-", repo: name.repository, tag: name.reference, changes };
    await this.#follow({ path: "/images/create", query, tar }, signal);
  }

  /** Removes images that carry the label and have lost their name, unless a container uses them. */
  async pruneNameless([key, value]: readonly [key: string, value: string], signal: AbortSignal): Promise<void> {
    const query = { filters: JSON.stringify({ dangling: ["true"], label: [`${key}=${value}`] }) };
    await this.#transport.done({ method: "POST", path: "/images/prune", query, ms: 60_000 }, signal);
  }

  /** Throws `PushRetried` when the engine waits for its third try of a layer. */
  async push(name: ImageReference, login: RegistryLogin | undefined, signal: AbortSignal): Promise<void> {
    const path = `/images/${name.repository}/push`;
    const headers = registryAuth(login, registryOf(name.repository));
    const call = { method: "POST", path, query: { tag: name.reference }, headers, ms: PROGRESS_SILENCE_MS } as const;
    await followProgress(this.#transport.stream(call, signal), refuseSecondRetry);
  }

  /** Commits without pausing: whether the tree stands still is the caller's decision. */
  async commit(
    container: string,
    { name, labels }: { readonly name: ImageReference; readonly labels: Readonly<Record<string, string>> },
    signal: AbortSignal,
  ): Promise<string> {
    const query = { container, repo: name.repository, tag: name.reference, pause: "false" };
    const call = { method: "POST", path: "/commit", query, json: { Labels: labels }, ms: COMMIT_MS } as const;
    return (await this.#transport.json(committed, call, signal)).Id;
  }

  async tag(image: string, name: ImageReference, signal: AbortSignal): Promise<void> {
    const query = { repo: name.repository, tag: name.reference };
    await this.#transport.done({ method: "POST", path: `/images/${image}/tag`, query }, signal);
  }

  /** Removes a name, and the image with its last one. Absent is a success. */
  async remove(name: string, signal: AbortSignal): Promise<void> {
    await this.#transport.done({ method: "DELETE", path: `/images/${name}`, ms: 90_000 }, signal).catch(tolerate(404));
  }

  async list(signal: AbortSignal): Promise<ListedImage[]> {
    return await this.#transport.json(listedImages, { method: "GET", path: "/images/json" }, signal);
  }

  /** Images that are commits of an installation's containers. */
  async listCommits(installation: string, signal: AbortSignal): Promise<ListedImage[]> {
    const filters = JSON.stringify({ label: [COMMIT_OF_LABEL, `${INSTALLATION_LABEL}=${installation}`] });
    return await this.#transport.json(
      listedImages,
      { method: "GET", path: "/images/json", query: { filters } },
      signal,
    );
  }

  async #follow(
    call: {
      path: string;
      query: Readonly<Record<string, string>>;
      headers?: Readonly<Record<string, string>>;
      tar?: Uint8Array | Readable;
    },
    signal: AbortSignal,
  ): Promise<void> {
    await followProgress(this.#transport.stream({ method: "POST", ms: PROGRESS_SILENCE_MS, ...call }, signal));
  }
}
