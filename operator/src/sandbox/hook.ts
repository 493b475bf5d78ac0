/**
 * The World's `snapshot.hook`: a command that runs in the session before it is frozen, so that a database can bring its files
 * into order. Once per attempt; an operator that ends in the middle of it runs it again. It never loses work: an ending goes
 * on whatever becomes of it, and the version says so. Only a snapshot that somebody asked for may be given up over it.
 */
import type { SandboxOperation, WorldSpec } from "@agentworlds/crds";
import type { ExecRecord, RuntimeDriver } from "../runtime/contract.ts";
import { isRuntimeError, RuntimeError } from "../runtime/errors.ts";
import { EnvironmentIncomplete } from "../runtime/session-environment.ts";
import { causeOf, currentOperation } from "./operation.ts";
import type { SandboxScope } from "./scope.ts";

type Hook = NonNullable<NonNullable<WorldSpec["snapshot"]>["hook"]>;
export type HookResult = NonNullable<SandboxOperation["hook"]>;

/** A snapshot that was asked for is given up because the hook failed, as `onFailure: Abort` wants it. */
export class HookFailed extends Error {
  override readonly name = "HookFailed";
}

/** What a hook says is not looked at, only how it ends. */
const MOST_OUTPUT_BYTES = 1 << 20;

/** Undefined where the World has none. Throws `HookFailed`. */
export async function runHook(
  scope: SandboxScope,
  container: { driver: RuntimeDriver; id: string },
): Promise<HookResult | undefined> {
  const hook = scope.world?.spec.snapshot?.hook;
  if (!hook) return undefined;
  const failure = await tryHook(scope, container, hook);
  if (failure === undefined) return { outcome: "Succeeded" };
  scope.dependencies.announce(
    { kind: "Sandbox", object: scope.sandbox },
    { type: "Warning", reason: "HookFailed", action: "Snapshot", message: failure, causedBy: causeOf(scope) },
  );
  if (hook.onFailure === "Abort" && currentOperation(scope).verb === "Snapshot") throw new HookFailed(failure);
  return { outcome: "Failed", message: failure };
}

/** Why it failed. Its output is nobody's business: it may hold what must not stand in a status. */
async function tryHook(
  scope: SandboxScope,
  { driver, id }: { driver: RuntimeDriver; id: string },
  hook: Hook,
): Promise<string | undefined> {
  const { signal } = scope.context;
  try {
    const env = await scope.dependencies.environmentOf(scope.sandbox, signal);
    const timeoutMs = (hook.timeoutSeconds ?? 30) * 1000;
    const request = { command: hook.command, env, timeoutMs, maxOutputBytes: MOST_OUTPUT_BYTES };
    return judgeRecord(await driver.exec(id, request, signal), hook);
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof EnvironmentIncomplete) return `the snapshot hook could not be run: ${error.message}`;
    // The container ended, or nothing can be said of it: that is about more than the hook.
    const isAboutHook =
      error instanceof RuntimeError &&
      !isRuntimeError(error, "ComputeNotRunning") &&
      !isRuntimeError(error, "ComputeNotFound") &&
      !isRuntimeError(error, "HostUnreachable");
    if (!isAboutHook) throw error;
    return `the snapshot hook could not be run to its end (${error.code})`;
  }
}

function judgeRecord({ timedOut, exitCode }: ExecRecord, { timeoutSeconds = 30 }: Hook): string | undefined {
  if (timedOut) return `the snapshot hook did not end within ${timeoutSeconds} s and was killed`;
  return exitCode === 0 ? undefined : `the snapshot hook ended with exit code ${exitCode}`;
}
