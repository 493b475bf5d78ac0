import { EnvironmentIncomplete } from "../runtime/session-environment.ts";
import type { SandboxScope } from "./scope.ts";

/**
 * Tells at a boot that commands will be refused, since a Secret of `spec.env` or a key of it is missing. The session is Ready all
 * the same: files go on as before, and commands run as soon as the Secret is there, since each reads it anew.
 */
export async function tellMissingEnvironment(scope: SandboxScope): Promise<void> {
  const { dependencies, sandbox, context } = scope;
  try {
    await dependencies.environmentOf(sandbox, context.signal);
  } catch (error) {
    context.signal.throwIfAborted();
    if (!(error instanceof EnvironmentIncomplete)) {
      const { name, namespace } = sandbox.metadata;
      dependencies.log.warn({ sandbox: name, namespace, err: error }, "the Secrets of spec.env could not be looked at");
      return;
    }
    dependencies.announce(
      { kind: "Sandbox", object: sandbox },
      {
        type: "Warning",
        reason: error.code,
        action: "Boot",
        message: `${error.message}: no command runs; ${error.remediation}`,
      },
    );
  }
}
