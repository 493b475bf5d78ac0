/**
 * A port with a fixed number belongs to one undertaking of this machine at a time, from before anything is started until
 * everything has ended. Who holds it says so on an abstract socket beside it, which dies with its process.
 */
import { readdir, readFile, readlink } from "node:fs/promises";
import { connect, createServer, type Server } from "node:net";
import { text } from "node:stream/consumers";
import { PartFailed, systemErrorCode } from "./errors.ts";
import { isPortFree } from "./ports.ts";

/** Who wants a port, for others that want it too. */
export interface PortWish {
  port: number;
  /** `make demo` */
  by: string;
  /** What ends it: "end it with Ctrl-C, or wait" */
  toEnd: string;
  signal: AbortSignal;
}

/**
 * Takes the port for this process until dispose.
 * @throws PartFailed with one sentence that says who holds it and what to do.
 */
export async function reservePort(wish: PortWish): Promise<AsyncDisposable> {
  const { port, by, toEnd, signal } = wish;
  const claim = await listenAt(claimOf(port), `by \`${by}\` (process ${process.pid}): ${toEnd}`);
  if (claim === undefined)
    throw new PartFailed("registry", (await whyTaken(port, signal)) ?? taken(port, NOBODY_KNOWN));
  await using undo = new AsyncDisposableStack();
  undo.defer(() => closed(claim));
  if (!(await isPortFree(port))) throw new PartFailed("registry", await takenByListener(port));
  return undo.move();
}

/** Why the port cannot be had now, as a sentence; undefined when it can. */
export async function whyTaken(port: number, signal: AbortSignal): Promise<string | undefined> {
  const holder = await askHolder(port, signal);
  if (holder !== undefined) return taken(port, holder);
  return (await isPortFree(port)) ? undefined : takenByListener(port);
}

const taken = (port: number, by: string): string => `port ${port} of 127.0.0.1 is taken ${by}`;

/** Held, by somebody too busy to say more, or who has just let go. */
const NOBODY_KNOWN = "by another undertaking of this machine: try again when it has ended";

async function takenByListener(port: number): Promise<string> {
  const listener = await listenerOf(port);
  const by = listener === undefined ? "another user's process" : `\`${listener.name}\` (process ${listener.pid})`;
  return taken(port, `by ${by}: end that first`);
}

/** Abstract sockets have no file that a crash would leave, and are the same for every user. */
const claimOf = (port: number): string => `\0agent-worlds/port/${port}`;

/** Undefined when somebody listens there already. */
function listenAt(path: string, answer: string): Promise<Server | undefined> {
  const { promise, resolve, reject } = Promise.withResolvers<Server | undefined>();
  const server = createServer((socket) => {
    // Whoever asks and goes away before the answer has lost interest.
    socket.on("error", () => socket.destroy());
    socket.end(answer);
  });
  server.once("error", (error) => (systemErrorCode(error) === "EADDRINUSE" ? resolve(undefined) : reject(error)));
  server.listen({ path }, () => resolve(server.unref()));
  return promise;
}

function closed(server: Server): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  server.close(() => resolve());
  return promise;
}

/** What the holder says of itself; undefined when there is none. */
async function askHolder(port: number, signal: AbortSignal): Promise<string | undefined> {
  const socket = connect({ path: claimOf(port), signal: AbortSignal.any([signal, AbortSignal.timeout(2_000)]) });
  try {
    return await text(socket);
  } catch (error) {
    signal.throwIfAborted();
    if (systemErrorCode(error) === "ECONNREFUSED") return undefined;
    return NOBODY_KNOWN;
  }
}

/** The process that listens on a port of loopback, where this user may see it. */
async function listenerOf(port: number): Promise<{ pid: string; name: string } | undefined> {
  const tables = await Promise.all(
    ["/proc/net/tcp", "/proc/net/tcp6"].map((path) => orUndefined(readFile(path, "utf8"))),
  );
  const inodes = tables.flatMap((table) => listeningInodes(table ?? "", port));
  if (inodes.length === 0) return undefined;
  const wanted = new Set(inodes.map((inode) => `socket:[${inode}]`));
  for (const pid of (await readdir("/proc")).filter((name) => /^\d+$/.test(name))) {
    const files = (await orUndefined(readdir(`/proc/${pid}/fd`))) ?? [];
    const links = await Promise.all(files.map((fd) => orUndefined(readlink(`/proc/${pid}/fd/${fd}`))));
    if (!links.some((link) => link !== undefined && wanted.has(link))) continue;
    // Its name and not its command line, which may hold what is not ours to print.
    return { pid, name: ((await orUndefined(readFile(`/proc/${pid}/comm`, "utf8"))) ?? "?").trim() };
  }
  return undefined;
}

/** Inodes of the sockets that listen on `port`, from a table of /proc/net (proc_pid_net(5)). */
export function listeningInodes(table: string, port: number): string[] {
  const [listens, wanted] = ["0A", port.toString(16).toUpperCase().padStart(4, "0")];
  return table.split("\n").flatMap((line) => {
    const [, local, , state, , , , , , inode] = line.trim().split(/\s+/);
    return state === listens && local?.endsWith(`:${wanted}`) === true && inode !== undefined ? [inode] : [];
  });
}

/** What belongs to another user, or is gone by now, is not there for us. */
async function orUndefined<T>(reading: Promise<T>): Promise<T | undefined> {
  try {
    return await reading;
  } catch (error) {
    if (["ENOENT", "EACCES", "EPERM", "ESRCH"].includes(systemErrorCode(error) ?? "")) return undefined;
    throw error;
  }
}
