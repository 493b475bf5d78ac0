import { type Answer, place } from "./answer.ts";
import type { Scope } from "./authentication.ts";
import type { Digest } from "./contract.ts";
import { RegistryError } from "./errors.ts";
import type { RepositoryPaths } from "./paths.ts";
import type { Transport } from "./transport.ts";

export interface UploadSessionOptions {
  readonly transport: Transport;
  readonly paths: RepositoryPaths;
  readonly signal: AbortSignal;
  /** Ends what would leave a session behind if it were cut off (its opening, a chunk, the commit); later than `signal`. */
  readonly chunkSignal: AbortSignal;
}

/** One upload session of a registry. The registry moves it with every answer; the last Location is the only valid one. */
export class UploadSession {
  /** The least the registry takes in a chunk that is not the last; 1 when it does not say. */
  readonly minChunk: number;
  readonly #options: UploadSessionOptions;
  readonly #scopes: readonly Scope[];
  #location: URL;
  #offset = 0;

  private constructor(options: UploadSessionOptions, answer: Answer) {
    this.#options = options;
    this.#scopes = pushScopes(options.paths.repository);
    this.#location = locationOf(answer);
    const min = answer.header("oci-chunk-min-length") ?? "";
    this.minChunk = /^\d{1,15}$/.test(min) ? Math.max(1, Number(min)) : 1;
  }

  /** Opens a session. A try that was cut off may leave an empty one behind: the registry purges those. */
  static async open(options: UploadSessionOptions): Promise<UploadSession> {
    const { transport, paths } = options;
    await using answer = await transport.send({
      method: "POST",
      url: paths.uploads,
      scopes: pushScopes(paths.repository),
      repeat: "Always",
      kind: "Call",
      signal: options.chunkSignal,
    });
    if (answer.status !== 202) throw await answer.failure("start an upload");
    return new UploadSession(options, answer);
  }

  /** The session that a 202 opened. */
  static from(options: UploadSessionOptions, answer: Answer): UploadSession {
    return new UploadSession(options, answer);
  }

  /** How many bytes the registry has. */
  get offset(): number {
    return this.#offset;
  }

  /** Sends the next bytes. Throws `UploadNotAdvancing` when the registry says 202 and has not kept them. */
  async patch(chunk: Uint8Array): Promise<void> {
    const end = this.#offset + chunk.length;
    await using answer = await this.#options.transport.send({
      method: "PATCH",
      url: this.#location,
      headers: { "content-type": "application/octet-stream", "content-range": `${this.#offset}-${end - 1}` },
      body: chunk,
      scopes: this.#scopes,
      repeat: "WhenNotProcessed",
      kind: "Call",
      signal: this.#options.chunkSignal,
    });
    // 416: the registry has another offset than we think. Like a lost session, this is for `resume` to sort out.
    if (answer.status === 404 || answer.status === 416) throw await lostSession(answer, "send a chunk");
    if (answer.status !== 202) throw await answer.failure("send a chunk");
    const kept = keptBytes(answer);
    if (kept !== end) {
      const message = `the registry took a chunk up to byte ${end} and says it has ${kept ?? "an unknown number"}`;
      throw new RegistryError("UploadNotAdvancing", message, { status: answer.status });
    }
    this.#location = locationOf(answer);
    this.#offset = end;
  }

  /**
   * Asks what has arrived after a failure. True: between `from` and `to`, and the session goes on from there. False: the
   * session is lost, or holds what we did not send.
   */
  async resume(expected: { from: number; to: number }): Promise<boolean> {
    await using answer = await this.#status(this.#options.signal);
    if (answer.status === 404 || answer.status === 416) return false;
    if (answer.status !== 204) throw await answer.failure("ask for the state of an upload");
    // Distribution answers an empty session with `0-0`, as it does one that holds a single byte.
    const kept = keptBytes(answer);
    const offset = kept === 1 && expected.from === 0 ? 0 : kept;
    if (offset === undefined || offset < expected.from || offset > expected.to) return false;
    this.#location = answer.header("location") === undefined ? this.#location : locationOf(answer);
    this.#offset = offset;
    return true;
  }

  /** Ends the session: its bytes, and `rest` if given, are the blob. */
  async commit(digest: Digest, rest?: Uint8Array): Promise<void> {
    // Appended by hand: rebuilding the query would re-encode the registry's own parameters, which may be signed.
    const join = this.#location.search === "" ? "?" : "&";
    await using answer = await this.#options.transport.send({
      method: "PUT",
      url: new URL(`${this.#location.href}${join}digest=${encodeURIComponent(digest)}`),
      headers: { "content-type": "application/octet-stream" },
      body: rest ?? new Uint8Array(0),
      scopes: this.#scopes,
      // Without bytes a repetition can only find the session gone, and then the blob tells whether it was stored.
      repeat: rest === undefined ? "Always" : "WhenNotProcessed",
      kind: "Call",
      signal: this.#options.chunkSignal,
    });
    if (answer.status === 404) throw await lostSession(answer, "finish an upload");
    if (answer.status === 201 || answer.status === 204) return;
    const failure = await answer.failure("finish an upload");
    if (!failure.reasons.includes("DIGEST_INVALID")) throw failure;
    throw new RegistryError("DigestMismatch", failure.message, { status: failure.status, reasons: failure.reasons });
  }

  /** Cancels the session; one that is gone is cancelled. Throws when the registry keeps it. */
  async cancel(signal: AbortSignal): Promise<void> {
    if (await this.#delete(signal)) return;
    // The Location may be stale after a cut-off chunk; distribution 3 gives a fresh one.
    await using answer = await this.#status(signal);
    const isKnown = answer.status === 204 && answer.header("location") !== undefined;
    if (isKnown) this.#location = locationOf(answer);
    if (isKnown && (await this.#delete(signal))) return;
    const failure = await answer.failure("cancel an upload");
    // Gone is cancelled. BLOB_UPLOAD_INVALID is a 404 too: distribution 2.8 keeps such a session and cannot read it.
    if (!failure.reasons.includes("BLOB_UPLOAD_UNKNOWN")) throw failure;
  }

  async #delete(signal: AbortSignal): Promise<boolean> {
    await using answer = await this.#options.transport.send({
      method: "DELETE",
      url: this.#location,
      scopes: this.#scopes,
      repeat: "Always",
      kind: "Call",
      signal,
    });
    return answer.status === 204 || answer.status === 202 || answer.status === 200;
  }

  #status(signal: AbortSignal): Promise<Answer> {
    const { transport } = this.#options;
    return transport.send({
      method: "GET",
      url: this.#location,
      scopes: this.#scopes,
      repeat: "Always",
      kind: "Call",
      signal,
    });
  }
}

/** Push needs pull too: registries check what is there already. */
export const pushScopes = (repository: string): Scope[] => [{ repository, actions: ["pull", "push"] }];

/** The session is not there any more: worth another try with a new one. */
async function lostSession(answer: Answer, what: string): Promise<RegistryError> {
  const { message, status, reasons } = await answer.failure(what);
  return new RegistryError("Unavailable", `the upload was lost: ${message}`, { status, reasons });
}

/** Bytes the registry says it has: `Range: 0-<last>`. */
function keptBytes(answer: Answer): number | undefined {
  const match = /^(?:bytes=)?0-(\d{1,15})$/.exec(answer.header("range") ?? "");
  return match === null ? undefined : Number(match[1]) + 1;
}

/** Absolute or relative, on this host or another; the transport decides who gets Authorization. */
function locationOf(answer: Answer): URL {
  const location = answer.header("location");
  if (location === undefined || !URL.canParse(location, answer.url.href)) {
    throw new RegistryError("Malformed", `${place(answer.url)} names no upload location`, { status: answer.status });
  }
  return new URL(location, answer.url);
}
