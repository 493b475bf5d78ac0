import type { IncomingMessage } from "node:http";
import type { Sandbox } from "@agentworlds/crds";
import type { Logger } from "pino";
import type { ResourceClient } from "../kube/contract.ts";
import type { Secret } from "../kube/resource-types.ts";
import type { Clock } from "../reconciler/clock.ts";
import type { RuntimeDriver } from "../runtime/contract.ts";
import { badRequest } from "./failure.ts";
import type { Identity } from "./identity.ts";
import type { Query } from "./request-target.ts";
import type { Route, WorldRoute } from "./routes.ts";
import type { SandboxReader, SandboxWriter } from "./sandbox-store.ts";
import type { TouchTrace } from "./touch-trace.ts";
import type { WorldStore } from "./world-store.ts";

/** Whoever waits for something. */
export interface Waiter {
  readonly logger: Logger;
  /** Aborts when the client goes away or the gateway is torn down. */
  readonly signal: AbortSignal;
  /** Aborts when the gateway begins to stop: who waits for something answers with what is known. */
  readonly draining: AbortSignal;
}

/** One authenticated and authorised request. */
export interface Call<R = Route> extends Waiter {
  readonly route: R;
  readonly identity: Identity;
  readonly query: Query;
  readonly request: IncomingMessage;
}

/** A request about a World. */
export type WorldCall = Call<WorldRoute>;

/** The part of a driver that reaches into a session, or into what one has left. */
export type SessionDriver = Pick<RuntimeDriver, "exec" | "readFile" | "writeFile" | "exportTar" | "ownerOf">;

/** Finds the driver of a host; throws `RuntimeError` when it cannot be reached. */
export type DriverLookup = (runtime: string, host: string, signal: AbortSignal) => Promise<SessionDriver>;

/** What the handlers work with. */
export interface Parts {
  readonly reader: SandboxReader;
  readonly writer: SandboxWriter;
  readonly worlds: WorldStore;
  readonly drivers: DriverLookup;
  /** For the session's environment. */
  readonly secrets: ResourceClient<Secret>;
  /** Where it is left who touched a running session. */
  readonly touches: TouchTrace;
  readonly clock: Clock;
  readonly limits: CallLimits;
}

export interface CallLimits {
  /** Most bytes of an exec body. Default 20 MiB: 16 MiB of stdin do not fit into less than 21.4 in base64, 14 do. */
  readonly execBodyBytes: number;
  /** How long snapshot and close wait before they answer 202. Default 45 s, below kube-apiserver's 60. */
  readonly longPollMs: number;
  /** Longest `timeoutSeconds` of an exec that comes through kube-apiserver. Default 50. */
  readonly proxiedExecSeconds: number;
  /** A file transfer that moves no byte for this long is ended. Default 60 s. */
  readonly stallMs: number;
}

/** What a handler answers; failures are thrown. */
export type Answer =
  | { readonly kind: "json"; readonly status: number; readonly body: unknown }
  | { readonly kind: "file"; readonly size: number; readonly content: AsyncIterable<Uint8Array> }
  /** Of a length that nobody knows beforehand: a cut is told from the end by the transfer coding. */
  | { readonly kind: "stream"; readonly type: string; readonly content: AsyncIterable<Uint8Array> };

export const json = (status: number, body: unknown): Answer => ({ kind: "json", status, body });

/** The driver of the compute that this very object records, so that no stranger of the same name is reached. */
export function driverOf(parts: Parts, compute: NonNullable<Sandbox["status"]["compute"]>, signal: AbortSignal) {
  return parts.drivers(compute.runtime, compute.host, signal);
}

/** Query parameters a route does not know are refused: a misspelt `mode` must not be ignored. */
export function onlyParameters(query: Query, names: readonly string[]): void {
  // kubectl and client-go add `timeout` and `pretty` to any request.
  const allowed = new Set([...names, "timeout", "pretty"]);
  for (const name of query.keys()) {
    if (!allowed.has(name)) throw badRequest("UnknownParameter", `unknown query parameter ${JSON.stringify(name)}`);
  }
}
