/**
 * The points of a whole process. undici, by which every client of the operator speaks, announces each request synchronously
 * on Node's diagnostics channels: before it leaves and after its answer was read. Here the process dies by SIGKILL, between
 * two instructions of the product and without a line in it. A socket that undici did not open would be an effect without a
 * point: it is reported, and fails the run.
 */
import { subscribe } from "node:diagnostics_channel";
import { Socket } from "node:net";
import { type Control, ControlFiles, type Death } from "./control.ts";
import { effectOf, type KillPoint, keyOf } from "./points.ts";

/** How often the control file is looked at beside every passing of a point. */
const LOOK_MS = 100;

/** The name under which an effect without a point is traced; nobody can die there, so it stays uncovered. */
export const UNTRACED = "untraced socket";

/** How long a socket may be connected before undici has announced it. */
const ANNOUNCED_WITHIN_MS = 5_000;

/** The clock that this process sees. */
export interface ShiftedClock {
  offsetMs: number;
}

/** Puts the gate up; from now on this process dies where `directory`'s control file says so. */
export function putUpGate(directory: string): void {
  const files = new ControlFiles(directory);
  const clock = shiftClock();
  const gate = new Gate(files, clock);
  gate.look();
  setInterval(() => gate.look(), LOOK_MS).unref();
  const names = new WeakMap<object, string>();
  subscribe("undici:request:create", (message) => {
    const request = requestOf(message);
    const name = effectOf(request);
    if (name === undefined) return;
    names.set(request.key, name);
    gate.pass({ name, moment: "before" });
  });
  subscribe("undici:request:trailers", (message) => {
    const name = names.get(requestOf(message).key);
    if (name !== undefined) gate.pass({ name, moment: "after" });
  });
  watchSockets(gate);
}

/** The machine's clock was set: whatever asks for the time gets the shifted one, whatever measures durations does not. */
function shiftClock(): ShiftedClock {
  const clock: ShiftedClock = { offsetMs: 0 };
  const now = Date.now.bind(Date);
  Date.now = () => now() + clock.offsetMs;
  return clock;
}

class Gate {
  readonly #files: ControlFiles;
  readonly #clock: ShiftedClock;
  readonly #covered = new Set<string>();
  #control: Control | undefined;
  #passings = 0;

  constructor(files: ControlFiles, clock: ShiftedClock) {
    this.#files = files;
    this.#clock = clock;
  }

  look(): Control {
    const control = this.#files.read();
    if (control.armed?.id !== this.#control?.armed?.id) this.#passings = 0;
    this.#clock.offsetMs = control.clockOffsetMs;
    this.#control = control;
    return control;
  }

  pass(point: KillPoint): void {
    const control = this.look();
    const line = { ...point, at: performance.timeOrigin + performance.now(), pid: process.pid };
    this.#files.passed(line);
    const { armed } = control;
    if (armed !== undefined && keyOf(armed) === keyOf(point)) {
      this.#passings += 1;
      const isFirst = () => this.#files.deaths().every((death) => death.armed !== armed.id);
      if (this.#passings >= armed.nth && isFirst()) this.#die({ ...line, armed: armed.id });
    }
    if (control.uncovered && !this.#isCovered(point)) this.#die(line);
  }

  report(name: string): void {
    this.#files.passed({ name, moment: "before", at: Date.now(), pid: process.pid });
  }

  /** The other replica may have died there a moment ago. */
  #isCovered(point: KillPoint): boolean {
    const key = keyOf(point);
    if (this.#covered.has(key)) return true;
    for (const death of this.#files.deaths()) this.#covered.add(keyOf(death));
    return this.#covered.has(key);
  }

  #die(death: Death): never {
    this.#files.died(death);
    process.kill(process.pid, "SIGKILL");
    // The kernel acts on the way out of the call above; nothing of this process runs past it.
    for (;;);
  }
}

/** Every client socket over which something was said must be one of undici's. */
function watchSockets(gate: Gate): void {
  const known = new WeakSet<object>();
  subscribe("undici:client:connected", (message) => known.add(objectAt(message, "socket")));
  subscribe("net.client.socket", (message) => {
    const socket = objectAt(message, "socket");
    if (!(socket instanceof Socket)) throw new TypeError("a client socket that is none");
    const judge = () => {
      // undici announces a TLS connection after its handshake, which on a busy machine takes its time.
      const isShakingHands = Reflect.get(socket, "secureConnecting") === true;
      if (!known.has(socket) && socket.bytesRead > 0 && !isShakingHands) gate.report(UNTRACED);
    };
    socket.once("close", judge);
    socket.once("connect", () => setTimeout(judge, ANNOUNCED_WITHIN_MS).unref());
  });
}

function requestOf(message: unknown) {
  const key = objectAt(message, "request");
  const text = (field: string): string => {
    const value: unknown = Reflect.get(key, field);
    return typeof value === "string" ? value : "";
  };
  const body: unknown = Reflect.get(key, "body");
  return {
    key,
    method: text("method"),
    target: text("path"),
    body: body instanceof Uint8Array ? Buffer.from(body).toString("utf8") : undefined,
  };
}

function objectAt(message: unknown, field: string): object {
  const value: unknown = typeof message === "object" && message !== null ? Reflect.get(message, field) : undefined;
  if (typeof value !== "object" || value === null) throw new TypeError(`a diagnostics message without ${field}`);
  return value;
}
