/** The World's conditions, derived once per pass from what the pass found. */
import { ADOPT_HEAD, type Condition, clip, LIMITS, type World, type WorldStatus } from "@agentworlds/crds";
import { type DerivedCondition, findCondition, mergeConditions } from "../reconciler/conditions.ts";
import { Terminal, Waiting } from "../reconciler/policy.ts";
import { explainRegistryHead, unpublishedRescues } from "./lineage.ts";
import type { Finding, HeadFinding, WorldProblem } from "./scope.ts";
import { statusOf } from "./status-writer.ts";

export interface WorldFindings {
  /** What the pass threw, if it threw. */
  readonly failure?: unknown;
  /** What was found of head's manifest; undefined: this pass did not come to look. */
  readonly head?: HeadFinding | undefined;
  /** Why the hold of a Sandbox that is gone stands. */
  readonly lostHold?: Finding | undefined;
  readonly problems?: readonly WorldProblem[];
  readonly now: number;
}

export function deriveWorldConditions(world: World, findings: WorldFindings): Condition[] {
  const status = statusOf(world);
  const failure = explain(findings.failure);
  const derived = [
    ...(status.head ? bootable(status, status.head, findings) : copying(world, failure)),
    ...behindRegistry(world),
    ...progress(world, failure),
    ...(findings.lostHold ? [presentWhileTrue("HolderLost", findings.lostHold)] : []),
    ...(findings.problems ?? []).map((problem) => presentWhileTrue(problem.type, problem)),
    ...rescues(world),
  ];
  const observedGeneration = world.metadata.generation ?? 0;
  return mergeConditions(
    status.conditions,
    derived.map((condition) => ({ ...condition, observedGeneration })),
    findings.now,
  );
}

type Derived = Omit<DerivedCondition, "observedGeneration">;

const presentWhileTrue = (type: string, { reason, message }: Finding): Derived => ({
  type,
  status: "True",
  reason,
  message: clip(message, LIMITS.message),
});

/** A registry that cannot be asked takes nothing away; one that says that head is not there does. */
function bootable(status: WorldStatus, head: NonNullable<WorldStatus["head"]>, findings: WorldFindings): Derived[] {
  const available = findings.head ?? lastKnown(status) ?? NOT_LOOKED_AT;
  const { genesis } = status;
  return [
    ready(status, head, available),
    { type: "HeadAvailable", status: available.status, reason: available.reason, message: available.message },
    {
      type: "GenesisReady",
      status: "True",
      reason: "GenesisCopied",
      message: genesis ? `${genesis.image} for ${genesis.platform}` : "adopted",
    },
  ];
}

function ready(status: WorldStatus, head: NonNullable<WorldStatus["head"]>, available: HeadFinding): Derived {
  if (status.registryHead) {
    const message = explainRegistryHead(status, status.registryHead);
    return { type: "Ready", status: "False", reason: "HeadBehindRegistry", message };
  }
  if (available.status === "False") {
    return { type: "Ready", status: "False", reason: available.reason, message: available.message };
  }
  return { type: "Ready", status: "True", reason: "Available", message: `version ${head.version} is head` };
}

/** Stands as long as the status says so, also while the registry cannot be asked. */
function behindRegistry({ metadata, status }: World): Derived[] {
  const newest = status?.registryHead;
  if (!status || !newest) return [];
  const annotate = `kubectl annotate --overwrite world ${metadata.name} -n ${metadata.namespace} ${ADOPT_HEAD}=${newest.digest}`;
  const remedy =
    newest.digest === undefined
      ? "restore what is missing in the registry, or delete the manifests that do not belong there"
      : `to go on with it: ${annotate}; to stay with head, delete the newer manifests from the registry`;
  return [
    presentWhileTrue("HeadBehindRegistry", {
      reason: "HeadBehindRegistry",
      message: `${explainRegistryHead(status, newest)}; nothing boots until this is decided; ${remedy}`,
    }),
  ];
}

const NOT_LOOKED_AT: HeadFinding = {
  status: "Unknown",
  reason: "NotLookedAt",
  message: "the registry was not asked for head yet",
};

const lastKnown = ({ conditions }: WorldStatus): HeadFinding | undefined => findCondition(conditions, "HeadAvailable");

function beginning({ spec }: World): string {
  const { image, repository } = spec.from;
  return image === undefined ? `adopting ${repository?.name}` : `copying ${image}`;
}

function copying(world: World, failure: ExplainedFailure | undefined): Derived[] {
  const reason = failure?.reason ?? "CopyingGenesis";
  const message = failure?.message ?? beginning(world);
  return [
    { type: "Ready", status: "False", reason, message },
    { type: "GenesisReady", status: "False", reason, message },
  ];
}

/** Work that is in no version: kept somewhere, or lost without anybody having taken note of it. */
function rescues(world: World): Derived[] {
  const status = statusOf(world);
  const { name, namespace } = world.metadata;
  const kept = unpublishedRescues(status);
  const lost = (status.lostWork ?? []).filter((one) => one.discardedBy === undefined);
  const [first] = kept;
  const last = lost.at(-1);
  return [
    ...(first
      ? [
          presentWhileTrue("SnapshotFailed", {
            reason: first.reason,
            message: `${kept.length} rescued, see kubectl world rescue list ${name} -n ${namespace}: ${kept.map((one) => `${one.operation} of Sandbox ${one.sandbox.name} on ${one.runtime}/${one.host} until ${one.expiresAt}: ${one.message}`).join("; ")}`,
          }),
        ]
      : []),
    ...(last
      ? [
          presentWhileTrue("WorkLost", {
            reason: "WorkLost",
            message: `${lost.length} lost, the last at ${last.at}: work of Sandbox ${last.sandbox.name}: ${last.message}; to take note of it: kubectl world rescue discard ${name} ${last.operation} -n ${namespace}`,
          }),
        ]
      : []),
  ];
}

function progress(world: World, failure: ExplainedFailure | undefined): Derived[] {
  if (failure?.stalled) return [presentWhileTrue("Stalled", failure)];
  if (failure) return [presentWhileTrue("Reconciling", failure)];
  if (statusOf(world).head) return [];
  return [presentWhileTrue("Reconciling", { reason: "CopyingGenesis", message: beginning(world) })];
}

/** Whether the Event about a failure is a warning. */
export const eventTypeOf = (failure: unknown): "Normal" | "Warning" =>
  failure instanceof Waiting ? failure.tells : "Warning";

/** A failure as a condition shows it. */
export interface ExplainedFailure {
  readonly reason: string;
  readonly message: string;
  /** No retry until the spec changes. */
  readonly stalled: boolean;
}

/** Reason and message of a thrown error; the remediation is part of the message, so that `kubectl describe` shows it. */
export function explain(failure: unknown): ExplainedFailure | undefined {
  if (failure === undefined) return undefined;
  if (failure instanceof Terminal || failure instanceof Waiting) {
    const message = failure.remediation ? `${failure.message}; ${failure.remediation}` : failure.message;
    return { reason: failure.reason, message, stalled: failure instanceof Terminal };
  }
  const message = failure instanceof Error ? failure.message : String(failure);
  return { reason: "Retrying", message, stalled: false };
}
