import { randomUUID } from "node:crypto";
import type { ComputeSpec, RuntimeDriver } from "../../../operator/src/runtime/contract.ts";
import type { RuntimeErrorCode } from "../../../operator/src/runtime/errors.ts";
import { RuntimeError } from "../../../operator/src/runtime/errors.ts";

/** A driver and the host behind it, as the contract suite needs them. */
export interface DriverUnderTest extends AsyncDisposable {
  readonly driver: RuntimeDriver;
  /** The installation that the driver acts for. */
  readonly installation: string;
  /** A driver of another installation on the same host. */
  readonly stranger: RuntimeDriver;
  /** An image with a shell at /bin/sh and the usual small programs. */
  readonly image: string;
  /** An image name that no pull finds. */
  readonly absentImage: string;
  /** Ends a container behind the driver's back. */
  kill(id: string): Promise<void>;
}

/** One use of a driver: makes sessions and local images, and removes them at the end. */
export class Bench implements AsyncDisposable {
  readonly driver: RuntimeDriver;
  readonly stranger: RuntimeDriver;
  readonly signal = AbortSignal.timeout(5 * 60_000);
  readonly installation: string;
  readonly #under: DriverUnderTest;
  readonly #ids = new Set<string>();
  readonly #localNames = new Set<string>();

  constructor(under: DriverUnderTest) {
    this.#under = under;
    this.driver = under.driver;
    this.stranger = under.stranger;
    this.installation = under.installation;
  }

  /** A spec of a Sandbox of its own; what is created from it is removed at the end. */
  spec(
    change: { image?: string; installation?: string; network?: "Isolated" | "None"; uid?: string } = {},
  ): ComputeSpec {
    const sandboxUid = change.uid ?? randomUUID();
    this.#ids.add(`aw-${sandboxUid}-1`);
    return {
      owner: {
        installation: change.installation ?? this.installation,
        namespace: "team-a",
        sandbox: "session",
        sandboxUid,
        boot: 1,
      },
      image: change.image ?? this.#under.image,
      limits: { pids: 128, memoryBytes: 256 << 20, cpus: 1 },
      isolation: { network: change.network ?? "None" },
    };
  }

  create(change: Parameters<Bench["spec"]>[0] = {}): Promise<string> {
    return this.driver.create(this.spec(change), this.signal);
  }

  /** A name for a commit of this test. */
  localName(): string {
    const name = `agentworlds/capture:${randomUUID()}`;
    this.#localNames.add(name);
    return name;
  }

  async write(id: string, path: string | Uint8Array, content: string | Uint8Array, mode?: number): Promise<void> {
    const write = { path: bytesOf(path), content: once(bytesOf(content)), ...(mode === undefined ? {} : { mode }) };
    await this.driver.writeFile(id, write, this.signal);
  }

  async read(id: string, path: string | Uint8Array): Promise<Buffer> {
    const { size, content } = await this.driver.readFile(id, bytesOf(path), this.signal);
    const bytes = Buffer.concat(await Array.fromAsync(content));
    if (bytes.length !== size) throw new Error(`announced ${size} bytes, got ${bytes.length}`);
    return bytes;
  }

  async shell(id: string, script: string): Promise<string> {
    const record = await this.driver.exec(id, { command: ["sh", "-c", script] }, this.signal);
    if (record.exitCode !== 0) throw new Error(`${script}: exit ${record.exitCode}: ${textOf(record.stderr)}`);
    return textOf(record.stdout);
  }

  async state(id: string): Promise<string> {
    return (await this.driver.inspect(id, this.signal)).state;
  }

  kill(id: string): Promise<void> {
    return this.#under.kill(id);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const signal = AbortSignal.timeout(60_000);
    for (const driver of [this.driver, this.stranger]) for (const id of this.#ids) await driver.remove(id, signal);
    for (const name of this.#localNames) await this.driver.forgetCommit(name, signal);
  }
}

export const bytesOf = (value: string | Uint8Array): Uint8Array =>
  typeof value === "string" ? Buffer.from(value) : value;

export const textOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString();

export async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

/** Installation of a `stranger`. */
export const STRANGERS_INSTALLATION = "somebody-else";

/** For `assert.rejects`: a runtime error of that code whose message matches. */
export const refusal =
  (code: RuntimeErrorCode, words = /./) =>
  (error: unknown): boolean =>
    error instanceof RuntimeError && error.code === code && words.test(error.message);
