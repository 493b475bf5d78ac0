/** What is known of damage to a World's versions, as conditions show it. */
import type { Condition } from "@agentworlds/crds";
import { findCondition } from "../reconciler/conditions.ts";
import { CONTINUE, type PhaseResult } from "../reconciler/reconcile.ts";
import { RegistryError } from "../registry/errors.ts";
import { repositoryInRegistry } from "./own-repository.ts";
import type { HeadFinding, WorldProblem, WorldScope } from "./scope.ts";
import { statusOf } from "./status-writer.ts";
import { type DamagedVersion, LineageLook, type VersionName } from "./verification.ts";

/**
 * Head: whole unless it was found damaged, and then it is looked at in full in every pass, so that it heals by itself. Other
 * versions: as the last verification found them; until this process has made one, as the World says already.
 */
export async function tellDamage(scope: WorldScope): Promise<PhaseResult> {
  const { head } = statusOf(scope.world);
  if (!head) return CONTINUE;
  const findings = scope.dependencies.findingsOf(scope.ref.uid);
  const isSuspect = findings ? findings.damaged.some(({ digest }) => digest === head.digest) : wasDamaged(scope, head);
  if (isSuspect && scope.head?.status === "True") scope.head = await lookAtHead(scope, head);
  const problem = findings ? damagedVersions(scope, findings.damaged) : knownProblem(scope);
  if (problem) scope.problems = [...scope.problems, problem];
  return CONTINUE;
}

/** By an earlier process: the condition names the digest. */
function wasDamaged({ world }: WorldScope, { digest }: VersionName): boolean {
  const known = findCondition(statusOf(world).conditions, "HeadAvailable");
  return known?.reason === "HeadDamaged" && known.message.includes(digest);
}

async function lookAtHead(scope: WorldScope, head: VersionName): Promise<HeadFinding> {
  const { client } = scope.dependencies.registry;
  try {
    const look = new LineageLook(client, repositoryInRegistry(scope), undefined);
    const damage = await look.damageOf(head, scope.context.signal);
    if (!damage) return scope.head ?? whole(head);
    return {
      status: "False",
      reason: "HeadDamaged",
      message: `version ${head.version} (${head.digest}) is not whole: ${damage.because}; restore it in the registry, nothing boots from head without it; an earlier version boots with spec.world.version and closePolicy Discard`,
    };
  } catch (error) {
    if (!(error instanceof RegistryError)) throw error;
    // What was found stands until the registry says otherwise.
    const known = findCondition(statusOf(scope.world).conditions, "HeadAvailable");
    return known?.status === "False"
      ? known
      : { status: "Unknown", reason: "RegistryUnavailable", message: error.message };
  }
}

const whole = ({ version, digest }: VersionName): HeadFinding => ({
  status: "True",
  reason: "HeadAvailable",
  message: `version ${version} (${digest}) is in the registry`,
});

/** Most versions that a condition names one by one. */
const MOST_NAMED = 8;

function damagedVersions(scope: WorldScope, damaged: readonly DamagedVersion[]): WorldProblem | undefined {
  const { versions = [], head } = statusOf(scope.world);
  const listed = damaged
    .filter(({ digest }) => digest !== head?.digest && versions.some((version) => version.digest === digest))
    .sort((a, b) => a.version - b.version);
  if (listed.length === 0) return undefined;
  const named = listed.slice(0, MOST_NAMED).map(({ version, because }) => `version ${version}: ${because}`);
  const more = listed.length > MOST_NAMED ? `; and ${listed.length - MOST_NAMED} more` : "";
  return { type: "VersionsDamaged", reason: "VersionsDamaged", message: `${named.join("; ")}${more}` };
}

function knownProblem({ world }: WorldScope): WorldProblem | undefined {
  const known: Condition | undefined = findCondition(statusOf(world).conditions, "VersionsDamaged");
  return known && { type: "VersionsDamaged", reason: "VersionsDamaged", message: known.message };
}
