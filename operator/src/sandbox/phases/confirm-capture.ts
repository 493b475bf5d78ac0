/**
 * The container is gone, so that what was captured of it is the only copy of the work. Status alone does not say what there is:
 * the operator may have ended between an effect and its record, and others may write status too. World, host and registry do.
 */
import { CONSISTENCIES, type SandboxOperation, type World } from "@agentworlds/crds";
import { CONTINUE, type PhaseResult } from "../../reconciler/reconcile.ts";
import type { RuntimeDriver } from "../../runtime/contract.ts";
import { rescuesOf } from "../../world/lost-hold.ts";
import { statusOf } from "../../world/status-writer.ts";
import { isPastCapture } from "../judge.ts";
import { recordStage } from "../operation.ts";
import { committedBy, publishedFields } from "../publish-operation.ts";
import { isoNow, recordIntent, recordProgress } from "../record.ts";
import type { SandboxScope } from "../scope.ts";
import { captureOwner, repositoryName } from "../world-of.ts";

/** Puts the operation where the facts are. One that has nothing left to publish is intended again, and so judged lost. */
export async function confirmCapture(scope: SandboxScope): Promise<PhaseResult> {
  const { driver, observed, sandbox, savesNothing } = scope;
  const { compute, operation } = sandbox.status;
  const isGone = observed?.state === "Absent" && compute?.provisionedAt !== undefined;
  if (!isGone || !driver || savesNothing || operation?.outcome === "Discard") return CONTINUE;
  if (operation) await confirm(scope, operation, driver);
  else await takeUp(scope, driver);
  return CONTINUE;
}

async function confirm(scope: SandboxScope, operation: SandboxOperation, driver: RuntimeDriver): Promise<void> {
  const committed = await committedBy(scope, operation.id);
  if (committed) {
    const { version, digest } = committed;
    if (operation.stage === "Committed" && operation.digest === digest) return;
    await recordProgress(scope, ({ status }) =>
      status.operation?.id === operation.id
        ? {
            operation: { ...status.operation, stage: "Committed", version, digest },
            ...publishedFields(scope, committed),
          }
        : undefined,
    );
    return;
  }
  const stage = await provenStage(scope, operation, driver);
  if (stage === operation.stage) return;
  await recordStage(scope, { stage, ...(operation.consistency ? {} : { consistency: CONSISTENCIES.Crash }) });
}

/** Beyond `Captured` a stage is believed: what it says is read again before the commit. */
async function provenStage(
  scope: SandboxScope,
  { id, stage }: SandboxOperation,
  driver: RuntimeDriver,
): Promise<SandboxOperation["stage"]> {
  const { dependencies, context } = scope;
  const { snapshots } = dependencies;
  const isOnItsWay = isPastCapture(stage) && stage !== "Committed" && stage !== "Discarded";
  if (await snapshots.isCaptured({ operation: id, driver, owner: captureOwner(scope) }, context.signal)) {
    return isOnItsWay ? stage : "Captured";
  }
  if (!scope.world) return stage;
  const pushed = { operation: id, driver, repository: repositoryName(scope) };
  if (!(await snapshots.uploaded(pushed, context.signal))) return "Intended";
  return isOnItsWay && stage !== "Captured" ? stage : "Uploaded";
}

/**
 * Somebody removed the operation from status in the middle of it. The newest capture of the boot is all that there is. Nothing
 * says that it was an ending's, so that the session may have worked on: its end is told as a loss (release.ts).
 */
async function takeUp(scope: SandboxScope, driver: RuntimeDriver): Promise<void> {
  const { dependencies, context, world, sandbox } = scope;
  const kept = rescuesOf(dependencies.runtimes, sandbox.metadata);
  const known = new Set([
    ...(world ? (statusOf(world).versions ?? []) : []).map(({ operation }) => operation),
    ...kept.flatMap(({ operation, snapshot }) => [operation, snapshot?.operation]),
  ]);
  const { bootedFrom, base, compute } = sandbox.status;
  const own = base?.digest === bootedFrom?.digest ? undefined : world && versionOf(world, base?.digest);
  // By the clock of the host, and nothing better is known of it: what an earlier snapshot left behind is in a version since.
  const publishedAt = own === undefined ? -Infinity : Date.parse(own.createdAt);
  const captures = (await driver.listCaptures(dependencies.installation, context.signal)).filter(
    ({ owner, operation, createdAt }) =>
      owner.sandboxUid === sandbox.metadata.uid &&
      owner.boot === compute?.boot &&
      !known.has(operation) &&
      createdAt > publishedAt,
  );
  const newest = captures.toSorted((one, other) => other.createdAt - one.createdAt)[0];
  if (!newest) return;
  await recordIntent(scope, {
    operation: {
      id: newest.operation,
      verb: "Hibernate",
      reason: "ContainerGone",
      stage: "Captured",
      outcome: "Snapshot",
      since: isoNow(scope),
      attempts: 0,
      consistency: CONSISTENCIES.Crash,
    },
  });
}

const versionOf = (world: World, digest: string | undefined) =>
  statusOf(world).versions?.find((version) => version.digest === digest);
