/** A session's operation as a publication of its World, and what a publication means for the session. */
import type { Digest } from "../registry/contract.ts";
import type { UploadedCapture } from "../snapshot/contract.ts";
import { readVersionFacts } from "../snapshot/version-facts.ts";
import {
  committedVersion,
  type PublicationContext,
  type PublishedVersion,
  publishVersion,
} from "../world/publication.ts";
import { WorldGone } from "../world/status-writer.ts";
import { causeOf, currentOperation, recordStage, versionReasonOf } from "./operation.ts";
import { isoNow } from "./record.ts";
import type { SandboxScope } from "./scope.ts";
import { repositoryName, worldRef } from "./world-of.ts";

const contextOf = ({ dependencies, context }: SandboxScope): PublicationContext => ({
  worldWriter: dependencies.worldWriter,
  registry: dependencies.registry,
  log: dependencies.log,
  signal: context.signal,
});

/** Publishes what this pass's operation captured and uploaded. */
export async function publishOperation(
  scope: SandboxScope,
  { uploaded, repository }: { readonly uploaded: UploadedCapture; readonly repository: string },
): Promise<PublishedVersion> {
  const { metadata, status } = scope.sandbox;
  const operation = currentOperation(scope);
  return publishVersion(contextOf(scope), {
    world: worldRef(scope),
    repository,
    uploaded,
    operation: operation.id,
    sandbox: { name: metadata.name, uid: metadata.uid },
    base: status?.base?.digest,
    bootedFrom: status?.bootedFrom?.digest,
    reason: versionReasonOf(operation),
    consistency: operation.consistency ?? "Crash",
    recovered: operation.recovered,
    hook: operation.hook?.outcome,
    description: operation.description,
    causedBy: causeOf(scope),
    ignoredRescues: status?.ignoredRescues,
    at: isoNow(scope),
    onStage: (stage) => recordStage(scope, { stage }),
  });
}

/**
 * What an operation has committed although its Sandbox does not say so: the operator ended in between. An operation's id is
 * read from status: a version that this boot has begun from, or that is older, holds nothing of its work.
 */
export async function committedBy(scope: SandboxScope, operation: string): Promise<PublishedVersion | undefined> {
  if (!scope.world) return undefined;
  const found = await committedVersion(contextOf(scope), worldRef(scope), operation);
  const began = scope.sandbox.status.bootedFrom?.version ?? -1;
  return found && found.version > began ? found : undefined;
}

/** Whether the World has a version of the operation, whatever it holds: nothing more is published under that id. */
export async function isUsedUp(scope: SandboxScope, operation: string): Promise<boolean> {
  return (
    scope.world !== undefined && (await committedVersion(contextOf(scope), worldRef(scope), operation)) !== undefined
  );
}

/** Whether the registry has that version, made by that operation: the proof that others cannot write into status. */
export async function isInRegistry(
  scope: SandboxScope,
  { digest, operation }: { readonly digest: Digest; readonly operation: string },
): Promise<boolean> {
  const access = { client: scope.dependencies.registry.client, repository: repositoryName(scope) };
  const facts = await readVersionFacts(access, digest, scope.context.signal);
  return facts?.operation === operation;
}

/**
 * The newest version that this boot has published and status does not know of: its operation was removed from status after
 * the commit. What the session publishes next builds on it.
 */
export async function missedVersion(scope: SandboxScope): Promise<PublishedVersion | undefined> {
  const { sandbox, world, dependencies, context } = scope;
  const base = sandbox.status.base?.version;
  if (!world || base === undefined) return undefined;
  try {
    const { status } = await dependencies.worldWriter.read(worldRef(scope), context.signal);
    const own = status.versions?.findLast(
      (version) => version.sandbox?.uid === sandbox.metadata.uid && version.version > base,
    );
    return own && { version: own.version, digest: own.digest, reason: own.reason };
  } catch (error) {
    if (error instanceof WorldGone) return undefined;
    throw error;
  }
}

/** A version that this session made is the base of its next. */
export const publishedFields = (scope: SandboxScope, { version, digest, reason }: PublishedVersion) => ({
  base: { version, digest },
  lastSnapshot: { version, digest, reason, at: isoNow(scope) },
});
