/**
 * The Runtime of a boot: chosen at admission, and judged again before its container is made there. In between status says
 * which it is, and others may write status; and what its owner or the World allows may have changed.
 */
import type { Runtime, SandboxCompute } from "@agentworlds/crds";
import { Terminal, Waiting } from "../reconciler/policy.ts";
import { judgeRecorded, type RuntimeWish, selectRuntime } from "../runtime/selection.ts";
import { checkRuntime, type RuntimeCheck } from "./admission.ts";
import { isoNow, recordProgress } from "./record.ts";
import type { SandboxScope } from "./scope.ts";

/** The one for a new boot. Throws why there is none. */
export async function chooseRuntime(scope: SandboxScope): Promise<Runtime> {
  const verdict = selectRuntime(scope.dependencies.runtimes.list(), await wishOf(scope));
  if (verdict.kind === "missing") {
    throw new Waiting(verdict.reason, { message: verdict.message, remediation: verdict.remediation, afterMs: 60_000 });
  }
  const check = checkFor(scope, verdict.runtime);
  if (check.kind === "refused") throw new Terminal(check.reason, check);
  if (check.kind === "waits") throw new Waiting(check.reason, { ...check, afterMs: 30_000 });
  return verdict.runtime;
}

/**
 * The one that is recorded, for as long as admission would let this session have it. Else the boot is over: nothing was ever
 * run in its container, so it lets go in the next pass, and admission says by name what is in the way. A cordon and silent hosts
 * are no reason: a boot that is under way is drained, or waits, like any session.
 */
export async function requireRecordedRuntime(scope: SandboxScope, compute: SandboxCompute): Promise<Runtime> {
  const runtime = scope.dependencies.runtimes.get(compute.runtime);
  if (!runtime) {
    throw new Waiting("RuntimeNotFound", {
      message: `Runtime ${compute.runtime} does not exist any more`,
      remediation: "create it again, or delete this Sandbox",
      afterMs: 60_000,
    });
  }
  const verdict = judgeRecorded(runtime, await wishOf(scope));
  const refused = verdict.kind === "missing" ? verdict : checkFor(scope, runtime);
  if (refused.kind === "fits" || refused.kind === "waits") return runtime;
  return refuseBoot(scope, compute, refused);
}

async function wishOf({ sandbox, world, dependencies, context }: SandboxScope): Promise<RuntimeWish> {
  const { namespace: name = "" } = sandbox.metadata;
  const namespace = await dependencies.namespaces.get({ name }, { signal: context.signal });
  return {
    name: sandbox.spec.runtime?.name ?? world?.spec.runtime?.name,
    namespace: name,
    namespaceLabels: namespace.metadata.labels ?? {},
  };
}

function checkFor({ sandbox: { spec }, world }: SandboxScope, runtime: Runtime): RuntimeCheck {
  return checkRuntime(runtime, {
    saves: spec.world !== undefined,
    platform: world?.status?.genesis?.platform,
    cpu: spec.resources?.cpu !== undefined,
    memory: spec.resources?.memory !== undefined,
  });
}

/** Its limit is reached now. One that has been Ready is let go by nobody here. */
export async function refuseBoot(
  scope: SandboxScope,
  { boot }: SandboxCompute,
  why: { readonly reason: string; readonly message: string },
): Promise<never> {
  await recordProgress(scope, ({ status: { compute, expiresAt } }) =>
    !compute || compute.boot !== boot || compute.provisionedAt !== undefined || expiresAt !== undefined
      ? undefined
      : { compute: { ...compute, bootDeadlineAt: isoNow(scope) } },
  );
  throw new Waiting(why.reason, {
    message: why.message,
    remediation: `nothing was in the container of boot ${boot}: it is given up, and admitted anew after a pause`,
    afterMs: 1_000,
  });
}
