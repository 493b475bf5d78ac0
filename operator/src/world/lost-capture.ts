/**
 * What a session that is gone had brought into the World's repository before its version was made. With container and capture
 * gone from every host it is the only copy of the work, and its session still holds the World: it becomes the next version
 * before the hold ends.
 */
import type { WorldHolder } from "@agentworlds/crds";
import { CONSISTENCIES } from "@agentworlds/crds";
import { isRegistryError } from "../registry/errors.ts";
import { settledOperations } from "../runtime/kept-work.ts";
import type { UploadedCapture } from "../snapshot/contract.ts";
import { operationOfTag } from "../snapshot/docker-commit.ts";
import { PublicationError } from "../snapshot/errors.ts";
import { isNeeded } from "./leftovers.ts";
import { repositoryInRegistry } from "./own-repository.ts";
import { type PublishedVersion, publishVersion } from "./publication.ts";
import type { WorldScope } from "./scope.ts";
import { sessionsThenWorld } from "./sessions.ts";
import { statusOf } from "./status-writer.ts";

interface LostCapture {
  readonly operation: string;
  readonly uploaded: UploadedCapture;
}

/** Repeatable: the version is found again by the operation. Undefined when the holder had brought nothing there. */
export async function publishLostCapture(
  scope: WorldScope,
  holder: WorldHolder,
): Promise<PublishedVersion | undefined> {
  const { writer, registry, log } = scope.dependencies;
  const { signal, clock } = scope.context;
  const lost = await newestOf(scope, holder);
  const { head, pending } = statusOf(scope.world);
  if (!lost || !head) return undefined;
  const { operation, uploaded } = lost;
  if (pending && pending.operation !== operation) await writer.abandon(scope.ref, pending.operation, signal);
  const published = await publishVersion(
    { worldWriter: writer, registry, log, signal },
    {
      world: scope.ref,
      repository: repositoryInRegistry(scope),
      uploaded,
      operation,
      sandbox: { name: holder.sandbox, uid: holder.uid },
      // Nobody but the holder moves head.
      base: head.digest,
      bootedFrom: uploaded.origin?.bootedFrom ?? head.digest,
      reason: "Crash",
      consistency: CONSISTENCIES.Crash,
      description: undefined,
      causedBy: holder.causedBy,
      recovered: { reason: "Rescued" },
      ignoredRescues: holder.ignoredRescues,
      at: new Date(clock.now()).toISOString(),
    },
  );
  log.warn({ operation, ...published }, "what a session that is gone had captured became a version");
  return published;
}

/** Of several captures of one session the newest holds it all. */
async function newestOf(scope: WorldScope, { uid }: WorldHolder): Promise<LostCapture | undefined> {
  const found: LostCapture[] = [];
  for (const operation of await unsettledOperations(scope)) {
    const uploaded = await readUploaded(scope, operation);
    const isItsOwn = uploaded?.origin?.sandboxUid === uid;
    if (isItsOwn && !isOlderThanHead(scope, { operation, uploaded })) found.push({ operation, uploaded });
  }
  return found.toSorted((one, other) => timeOf(other) - timeOf(one))[0];
}

/** Epoch milliseconds, by the clock of its host. */
const timeOf = ({ uploaded }: LostCapture): number => Date.parse(uploaded.capturedAt ?? "") || 0;

/**
 * The session has published since: a snapshot that it gave up, and a version that the World does not list any more, leave their
 * captures behind where the registry deletes nothing. None of them may become head again. What was reserved is not among them.
 */
function isOlderThanHead({ world }: WorldScope, lost: LostCapture): boolean {
  const { head, versions = [], pending, holder } = statusOf(world);
  const newest = versions.find(({ digest }) => digest === head?.digest);
  if (newest === undefined || newest.sandbox?.uid !== holder?.uid) return false;
  return lost.operation !== pending?.operation && timeOf(lost) <= Date.parse(newest.createdAt);
}

/** Pushed, and neither a version nor given up nor anybody's to go on with. */
async function unsettledOperations(scope: WorldScope): Promise<string[]> {
  const { registry } = scope.dependencies;
  const tags = await registry.client.listTags(repositoryInRegistry(scope), scope.context.signal).catch(nothing);
  const operations = tags.flatMap((tag) => operationOfTag(tag) ?? []);
  if (operations.length === 0) return [];
  const sessions = await sessionsThenWorld(scope);
  const { pending } = statusOf(scope.world);
  const settled = settledOperations(scope.world.status);
  return operations.filter(
    (operation) =>
      !settled.has(operation) && (operation === pending?.operation || !isNeeded(scope, sessions, operation)),
  );
}

/** What is no whole image can never be a version. */
async function readUploaded(scope: WorldScope, operation: string): Promise<UploadedCapture | undefined> {
  const { snapshots, log } = scope.dependencies;
  const repository = repositoryInRegistry(scope);
  try {
    return await snapshots.uploaded({ operation, repository }, scope.context.signal);
  } catch (error) {
    if (!(error instanceof PublicationError)) throw error;
    log.warn({ err: error, operation }, "what a session that is gone had pushed is no whole image");
    return undefined;
  }
}

/** A repository that does not exist yet. */
function nothing(error: unknown): never[] {
  if (isRegistryError(error, "NotFound")) return [];
  throw error;
}
