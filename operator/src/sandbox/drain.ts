/** Whether the Runtime on which a session runs gives it up. */
import { type Drain, drainOf as drainOfRuntime } from "../runtime/drain.ts";
import type { SandboxScope } from "./scope.ts";

export function drainOf({ sandbox, dependencies }: Pick<SandboxScope, "sandbox" | "dependencies">): Drain | undefined {
  const runtime = sandbox.status?.compute?.runtime;
  return runtime === undefined ? undefined : drainOfRuntime(dependencies.runtimes.get(runtime));
}
