import { setTimeout as sleep } from "node:timers/promises";
import type {
  ComputeOwner,
  ExecRecord,
  ExecRequest,
  FileWrite,
  RuntimeDriver,
} from "../../../operator/src/runtime/contract.ts";
import { RuntimeError } from "../../../operator/src/runtime/errors.ts";

/**
 * The part of a container host the gateway uses, in memory: `echo`, `cat` (stdin), `wait` (until the signal or
 * timeout), `flood`; files by compute id. What it is asked for is kept, so that a test can tell whom it reached.
 */
export class MemoryDriver {
  readonly execs: { id: string; request: ExecRequest }[] = [];
  /** How the last upload into each compute went. */
  readonly uploads = new Map<string, "receiving" | "broken" | "whole">();
  readonly #files = new Map<string, Buffer>();

  readonly driver: Pick<RuntimeDriver, "exec" | "readFile" | "writeFile" | "exportTar" | "ownerOf"> = {
    ownerOf: async (id) => this.owners.get(id),
    exec: (id, request, signal) => this.#exec(id, request, signal),
    readFile: async (id, path) => this.#readFile(id, path),
    writeFile: (id, write) => this.#writeFile(id, write),
    exportTar: async (id) => {
      const archive = this.archives.get(id);
      if (archive === undefined) throw new RuntimeError("ComputeNotFound", `no container ${id}`);
      return archive === TORN ? pieces(Buffer.alloc(200_000), "torn") : pieces(archive);
    },
  };

  /** Whose the containers are. */
  readonly owners = new Map<string, ComputeOwner>();
  /** What the export of a container gives; `TORN` breaks before its end. */
  readonly archives = new Map<string, Buffer | typeof TORN>();

  put(id: string, path: string, content: Buffer): void {
    this.#files.set(fileKey(id, Buffer.from(path)), content);
  }

  async #exec(id: string, request: ExecRequest, signal: AbortSignal): Promise<ExecRecord> {
    this.execs.push({ id, request });
    const [program, ...rest] = request.command;
    const record = { exitCode: 0, signal: 0, timedOut: false, stderr: new Uint8Array(), durationMs: 1 };
    switch (program) {
      case "echo":
        return { ...record, stdout: Buffer.from(rest.join(" ")) };
      case "cat":
        return { ...record, stdout: request.stdin ?? new Uint8Array() };
      case "wait":
        await sleep(Number(rest[0]), undefined, { signal });
        return { ...record, stdout: new Uint8Array() };
      case "flood":
        throw new RuntimeError("OutputTooLarge", "more than 16 MiB of output");
      default:
        throw new RuntimeError("CommandNotStarted", `${program} was not found`);
    }
  }

  #readFile(id: string, path: Uint8Array): { size: number; content: AsyncIterable<Uint8Array> } {
    const content = this.#files.get(fileKey(id, path));
    if (content === undefined) throw new RuntimeError("FileNotFound", "no such file");
    const torn = Buffer.from(path).toString() === TORN;
    return { size: content.length, content: torn ? pieces(content.subarray(0, 100_000), "torn") : pieces(content) };
  }

  async #writeFile(id: string, write: FileWrite): Promise<void> {
    const chunks: Uint8Array[] = [];
    try {
      for await (const chunk of write.content) {
        chunks.push(Buffer.from(chunk));
        this.uploads.set(id, "receiving");
      }
    } catch (error) {
      this.uploads.set(id, "broken");
      throw error;
    }
    this.#files.set(fileKey(id, write.path), Buffer.concat(chunks));
    this.uploads.set(id, "whole");
  }
}

/** A file whose stream breaks before its end. */
export const TORN = "/torn";

const fileKey = (id: string, path: Uint8Array): string => `${id}:${Buffer.from(path).toString("hex")}`;

async function* pieces(content: Buffer, end?: "torn"): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < content.length; at += 65_536) yield content.subarray(at, at + 65_536);
  if (end === "torn") throw new RuntimeError("ExecConnectionLost", "the stream ended early");
}
