/** Work of a World that could not be published and is kept on its host: see it, and say what becomes of it. */
import { randomUUID } from "node:crypto";
import type { LostWork, WorldRescue } from "@agentworlds/crds";
import type { Connected } from "./connected.ts";
import { type CallOptions, Deadline } from "./deadline.ts";
import { ConfigurationError, ProtocolError } from "./errors.ts";
import { isRecord, numberIn, textIn } from "./json.ts";
import { segment } from "./naming.ts";
import type { NamespaceOption } from "./sandboxes.ts";
import { SESSIONS_API, type VersionResult } from "./session.ts";
import { wholeTar } from "./whole-tar.ts";

/** What a World has kept, and what it has given up. */
export interface RescueList {
  readonly rescues: readonly WorldRescue[];
  readonly lostWork: readonly LostWork[];
}

/** A rescue that was pushed beside the lineage. */
export interface ExportResult {
  /** `registry/repository@digest`, as `docker run` takes it. */
  readonly image: string;
  readonly digest: string | undefined;
}

type Verb = "Retry" | "Export" | "Discard";
type Options = CallOptions & NamespaceOption;
/** With an id of one's own the same wish can be repeated by another process. */
type AskOptions = Options & { readonly id?: string | undefined };

const READ_TIMEOUT_MS = 30_000;
/** Ten minutes: a large World's layer may have to be uploaded. */
const ASK_TIMEOUT_MS = 600_000;
const ARCHIVE_TIMEOUT_MS = 3_600_000;

/** `worlds.rescues`. A rescue is named by the operation that failed. */
export class Rescues {
  readonly #connect: () => Promise<Connected>;

  constructor(connect: () => Promise<Connected>) {
    this.#connect = connect;
  }

  async list(world: string, options: Options = {}): Promise<RescueList> {
    const connected = await this.#connect();
    const answer = await connected.sessions.json({
      method: "GET",
      path: pathOf(world, options.namespace ?? connected.namespace, "rescues"),
      repetition: "Repeatable",
      timeoutMs: options.timeoutMs ?? READ_TIMEOUT_MS,
      signal: options.signal,
    });
    return listIn(answer);
  }

  /** Tries again at once; rejects with what stands in the way. Default deadline 10 minutes. */
  async retry(world: string, operation: string, options: AskOptions = {}): Promise<VersionResult> {
    const answer = await this.#ask("Retry", { world, operation }, options);
    return { version: numberIn(answer, "version"), digest: textIn(answer, "digest") };
  }

  /** Pushes the work beside the lineage, where ordinary tools run and copy it. The rescue stays as it is. */
  async export(world: string, operation: string, options: AskOptions = {}): Promise<ExportResult> {
    const answer = await this.#ask("Export", { world, operation }, options);
    const image = textIn(answer, "image");
    if (image === undefined) throw badAnswer("Export");
    return { image, digest: textIn(answer, "digest") };
  }

  /** Gives the work up for good. Of work that is lost already it takes note. */
  async discard(world: string, operation: string, options: AskOptions = {}): Promise<void> {
    await this.#ask("Discard", { world, operation }, options);
  }

  /**
   * The whole filesystem of the kept container as a tar, past the registry. What was not the whole throws at its end.
   * Default deadline 1 hour.
   */
  async *archive(world: string, operation: string, options: Options = {}): AsyncGenerator<Uint8Array> {
    const connected = await this.#connect();
    yield* wholeTar(
      connected.sessions.stream({
        method: "GET",
        path: pathOf(world, options.namespace ?? connected.namespace, `proxy/rescues/${operationIn(operation)}.tar`),
        repetition: "Repeatable",
        timeoutMs: options.timeoutMs ?? ARCHIVE_TIMEOUT_MS,
        signal: options.signal,
      }),
    );
  }

  /** Asks with one id until the answer is there: each request waits below kube-apiserver's cut and answers 202 then. */
  async #ask(verb: Verb, of: { world: string; operation: string }, options: AskOptions): Promise<unknown> {
    const deadline = new Deadline(options.timeoutMs ?? ASK_TIMEOUT_MS, options.signal);
    const connected = await this.#connect();
    const path = pathOf(of.world, options.namespace ?? connected.namespace, "rescues");
    const json = { id: options.id ?? randomUUID(), verb, operation: operationIn(of.operation) };
    for (;;) {
      const answer = await connected.sessions.json({
        method: "POST",
        path,
        body: { json },
        repetition: "Repeatable",
        timeoutMs: deadline.remainingMs,
        signal: options.signal,
      });
      if (!isRecord(answer) || typeof answer["done"] !== "boolean") throw badAnswer(verb);
      if (answer["done"]) return answer;
      // A gateway that stops answers at once; the next request must not meet it in a busy loop.
      await connected.sessions.sleep(100, deadline.signal);
    }
  }
}

const pathOf = (world: string, namespace: string, subresource: string): string =>
  `${SESSIONS_API}/namespaces/${segment(namespace)}/worlds/${segment(world)}/${subresource}`;

/** A server might read `..` as a path. */
function operationIn(operation: string): string {
  if (/^[A-Za-z0-9][-_.A-Za-z0-9]{0,63}$/.test(operation)) return operation;
  throw new ConfigurationError({
    code: "BadOperation",
    message: `${JSON.stringify(operation)} names no rescue`,
    remediation: "take the operation from the list of rescues",
  });
}

function listIn(answer: unknown): RescueList {
  const { rescues, lostWork } = isRecord(answer) ? answer : {};
  if (!isListOf<WorldRescue>(rescues) || !isListOf<LostWork>(lostWork)) throw badAnswer("list");
  return { rescues, lostWork };
}

/** What tells rescues from anything else: each has the operation that names it. */
const isListOf = <T extends { operation: string }>(value: unknown): value is T[] =>
  Array.isArray(value) && value.every((one) => textIn(one, "operation") !== undefined);

const badAnswer = (verb: string): ProtocolError =>
  new ProtocolError({ code: "BadAnswer", message: `the gateway's answer to ${verb} is not what the API promises` });
