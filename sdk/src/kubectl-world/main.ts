/** `kubectl world`: what a command line does. */
import { createWriteStream } from "node:fs";
import { rename, rm } from "node:fs/promises";
import { Readable, type Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { AgentWorlds } from "../client.ts";
import { AgentWorldsError, ConfigurationError } from "../errors.ts";
import type { Rescues } from "../rescues.ts";
import { type Command, HELP, readCommandLine } from "./command-line.ts";
import { printed } from "./print.ts";

/** What a run works with, so that a test can give others. */
export interface Surroundings {
  readonly stdout: Writable;
  readonly stderr: Writable;
  readonly signal: AbortSignal;
  /** Default: the cluster's, by the command line's kubeconfig. */
  readonly rescues?: Rescues;
}

/** Exit code: 0 done, 1 it was refused or went wrong, 2 the command line cannot be understood. */
export async function run(args: readonly string[], around: Surroundings): Promise<number> {
  const { command, output, access, timeoutMs } = readCommandLine(args);
  if (command.kind === "help") {
    if (command.problem === undefined) {
      around.stdout.write(HELP);
      return 0;
    }
    around.stderr.write(`error: ${command.problem}\n\n${HELP}`);
    return 2;
  }
  await using client = new AgentWorlds(access);
  const rescues = around.rescues ?? client.worlds.rescues;
  const options = { signal: around.signal, ...(timeoutMs === undefined ? {} : { timeoutMs }) };
  try {
    const done = await carryOut(command, rescues, { ...around, options });
    if (done !== undefined) around.stdout.write(output === "json" ? `${JSON.stringify(done.json)}\n` : done.text);
    return 0;
  } catch (error) {
    around.stderr.write(`error: ${explain(error)}\n`);
    return 1;
  }
}

interface Done {
  readonly text: string;
  readonly json: unknown;
}

type Work = Surroundings & { readonly options: { readonly signal: AbortSignal; readonly timeoutMs?: number } };

async function carryOut(
  command: Exclude<Command, { kind: "help" }>,
  rescues: Rescues,
  work: Work,
): Promise<Done | undefined> {
  const { world } = command;
  const { options } = work;
  switch (command.kind) {
    case "list": {
      const found = await rescues.list(world, options);
      return { text: printed(found), json: found };
    }
    case "retry": {
      const operation = await theOne(command, rescues, options);
      const version = await rescues.retry(world, operation, options);
      return { text: `rescue ${operation} is version ${version.version} (${version.digest})\n`, json: version };
    }
    case "export": {
      const operation = await theOne(command, rescues, options);
      if (command.tar !== undefined) {
        await save(rescues.archive(world, operation, options), command.tar, work);
        return undefined;
      }
      const exported = await rescues.export(world, operation, options);
      return { text: `${exported.image}\n`, json: exported };
    }
    case "discard":
      await rescues.discard(world, command.operation, options);
      return { text: `rescue ${command.operation} is discarded\n`, json: { operation: command.operation } };
  }
}

/** The rescue that is named, or the only one there is. */
async function theOne(
  { world, operation }: { readonly world: string; readonly operation: string | undefined },
  rescues: Rescues,
  options: Work["options"],
): Promise<string> {
  if (operation !== undefined) return operation;
  const { rescues: found } = await rescues.list(world, options);
  const [only, ...others] = found;
  if (only !== undefined && others.length === 0) return only.operation;
  throw new ConfigurationError({
    code: only === undefined ? "NoRescue" : "SeveralRescues",
    message: only === undefined ? `World ${world} has no rescue` : `World ${world} has ${found.length} rescues`,
    remediation: only === undefined ? undefined : `name one of ${found.map((one) => one.operation).join(", ")}`,
  });
}

/** Under its own name only when it is whole. */
async function save(content: AsyncIterable<Uint8Array>, path: string, { stdout, signal }: Work): Promise<void> {
  const source = Readable.from(content, { objectMode: false });
  if (path === "-") return pipeline(source, stdout, { signal, end: false });
  const partial = `${path}.part`;
  try {
    await pipeline(source, createWriteStream(partial, { mode: 0o600 }), { signal });
    await rename(partial, path);
  } catch (error) {
    await rm(partial, { force: true });
    throw error;
  }
}

function explain(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (!(error instanceof AgentWorldsError)) return error.message;
  const { message, cause, remediation } = error;
  // A gateway's message holds both of them already.
  const isNew = (part: unknown): part is string => typeof part === "string" && !message.includes(part);
  return `${message}${isNew(cause) ? ` (${cause})` : ""}${isNew(remediation) ? `; ${remediation}` : ""}`;
}
