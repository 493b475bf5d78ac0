/**
 * `status.head` and `status.versions` are written together, so where they name two digests for one number somebody has altered
 * one of them. Which is right the registry says: a manifest tells which version of which World it is (docs/adr/0012).
 */
import type { WorldStatus } from "@agentworlds/crds";
import { Waiting } from "../reconciler/policy.ts";
import { CONTINUE, type PhaseResult } from "../reconciler/reconcile.ts";
import type { Digest } from "../registry/contract.ts";
import { RegistryError } from "../registry/errors.ts";
import { readVersionFacts } from "../snapshot/version-facts.ts";
import { explainContradiction } from "./lineage.ts";
import { repositoryInRegistry } from "./own-repository.ts";
import type { WorldScope } from "./scope.ts";
import { statusOf, type WorldStatusPatch } from "./status-writer.ts";

/** Puts right what was altered. Until then nothing boots from such a head. */
export async function mendHead(scope: WorldScope): Promise<PhaseResult> {
  if (!explainContradiction(statusOf(scope.world))) return CONTINUE;
  // The cache may lag behind one of two writes.
  scope.world = await scope.dependencies.writer.read(scope.ref, scope.context.signal);
  const status = statusOf(scope.world);
  const message = explainContradiction(status);
  if (message === undefined || !status.head) return CONTINUE;
  const right = await rightDigest(scope, status);
  if (right === "unknown") return CONTINUE;
  if (right === undefined) {
    const reason = "HeadContradicted";
    const unsolved = `${message}, and the registry has no such version of this World under either`;
    scope.head = { status: "False", reason, message: unsolved };
    throw new Waiting(reason, {
      message: unsolved,
      remediation: "put the right digest into status.head, or restore the registry; nothing boots before",
      afterMs: 60_000,
    });
  }
  const { registry, writer, announce } = scope.dependencies;
  const image = `${registry.asWeNameIt(repositoryInRegistry(scope))}@${right}`;
  scope.world = await writer.restore(
    scope.ref,
    (stored) => (explainContradiction(stored) === message ? mended(stored, { digest: right, image }) : undefined),
    scope.context.signal,
  );
  announce(
    { kind: "World", object: scope.world },
    {
      type: "Warning",
      reason: "HeadMended",
      action: "Mend",
      message: `${message}; by the registry version ${status.head.version} is ${right}, and both say so again`,
    },
  );
  return CONTINUE;
}

/** `unknown`: the registry cannot be asked now. */
async function rightDigest(
  scope: WorldScope,
  { head, versions = [] }: WorldStatus,
): Promise<Digest | "unknown" | undefined> {
  const listed = versions.find(({ version }) => version === head?.version)?.digest;
  try {
    for (const digest of [listed, head?.digest]) {
      if (digest !== undefined && head && (await isVersion(scope, { digest, version: head.version }))) return digest;
    }
    return undefined;
  } catch (error) {
    if (error instanceof RegistryError) return "unknown";
    throw error;
  }
}

async function isVersion(scope: WorldScope, wanted: { digest: Digest; version: number }): Promise<boolean> {
  const access = { client: scope.dependencies.registry.client, repository: repositoryInRegistry(scope) };
  const facts = await readVersionFacts(access, wanted.digest, scope.context.signal);
  return facts !== undefined && facts.version === wanted.version && facts.world.uid === scope.ref.uid;
}

const mended = (
  { head, versions = [] }: WorldStatus,
  { digest, image }: { readonly digest: Digest; readonly image: string },
): WorldStatusPatch | undefined =>
  head && {
    head: { version: head.version, digest, image },
    versions: versions.map((version) => (version.version === head.version ? { ...version, digest } : version)),
  };
