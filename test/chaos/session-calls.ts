/** What a client of the product does to Sandboxes: writes that are tried again until they are answered, and conditions that are waited for. */
import { randomUUID } from "node:crypto";
import type { Sandbox, SandboxRequest } from "@agentworlds/crds";
import { ApiError, ConnectionError, isAlreadyExists, isConflict, isNotFound } from "../../operator/src/kube/errors.ts";
import type { Board } from "./board.ts";

const RETRY_MS = 200;
const GIVE_UP_MS = 180_000;

export type SandboxRef = { readonly name: string; readonly namespace: string };

/** Tries a call again while the API server is away or overloaded. */
export async function persistently<R>(call: (signal: AbortSignal) => Promise<R>): Promise<R> {
  const signal = AbortSignal.timeout(GIVE_UP_MS);
  for (;;) {
    try {
      return await call(signal);
    } catch (error) {
      const heals = error instanceof ConnectionError || (error instanceof ApiError && error.status >= 429);
      if (!heals || signal.aborted) throw error;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

/** Creates what may have been created by a try whose answer was lost. */
export async function createOnce<T>(create: () => Promise<T>, read: () => Promise<T>): Promise<T> {
  try {
    return await persistently(create);
  } catch (error) {
    if (!isAlreadyExists(error)) throw error;
    return persistently(read);
  }
}

/** Changes the Sandbox by compare-and-swap, as a gateway does; undefined when it is gone or there is nothing to change. */
export async function changeStatus(
  board: Board,
  ref: SandboxRef,
  change: (sandbox: Sandbox) => Record<string, unknown> | undefined,
): Promise<Sandbox | undefined> {
  for (;;) {
    try {
      const fresh = await persistently((signal) => board.sandboxes.get(ref, { signal }));
      const status = change(fresh);
      if (status === undefined) return undefined;
      const metadata = { resourceVersion: fresh.metadata.resourceVersion };
      return await persistently((signal) => board.sandboxes.patchStatus(ref, { metadata, status }, { signal }));
    } catch (error) {
      if (isNotFound(error)) return undefined;
      if (!isConflict(error)) throw error;
    }
  }
}

/** Appends a request; its id is the answer's. */
export async function ask(
  board: Board,
  ref: SandboxRef,
  wish: Pick<SandboxRequest, "verb" | "parameters">,
  onId: (id: string) => void = () => undefined,
): Promise<string> {
  const id = randomUUID();
  onId(id);
  await changeStatus(board, ref, ({ status }) => {
    const requests = status.requests ?? [];
    if (requests.some((request) => request.id === id)) return undefined;
    return { requests: [...requests, { id, ...wish, user: "chaos", at: new Date().toISOString() }].slice(-16) };
  });
  return id;
}

/** Moves the deadline as a touch of a running session does. */
export async function touch(board: Board, ref: SandboxRef, ttlMs: number): Promise<void> {
  await changeStatus(board, ref, ({ status }) => {
    if (status.expiresAt === undefined) return undefined;
    const expiresAt = Math.max(Date.parse(status.expiresAt), Date.now() + ttlMs);
    return { expiresAt: new Date(expiresAt).toISOString(), lastActivityAt: new Date().toISOString() };
  });
}

export async function setMode(board: Board, ref: SandboxRef, mode: "Running" | "Hibernated"): Promise<void> {
  await persistently((signal) => board.sandboxes.patch(ref, { spec: { mode } }, { signal })).catch(unlessGone);
}

export async function remove(board: Board, ref: SandboxRef): Promise<void> {
  await persistently((signal) => board.sandboxes.delete(ref, { signal })).catch(unlessGone);
}

/** Whoever wants it gone has what they want. */
export function unlessGone(error: unknown): void {
  if (!isNotFound(error)) throw error;
}
