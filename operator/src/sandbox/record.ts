/**
 * Writes of `Sandbox.status` and metadata in the middle of a pass: intent that must survive a crash is persisted before the
 * effect it announces. Everything else waits for the one deferred write of status.ts.
 */
import type { Sandbox, SandboxStatus } from "@agentworlds/crds";
import { isNotFound } from "../kube/errors.ts";
import { retryOnConflict } from "../kube/retry-on-conflict.ts";
import { mergePatchBetween } from "../reconciler/patch.ts";
import { Overtaken } from "../reconciler/policy.ts";
import { namesForeignCompute, SANDBOX_FINALIZER } from "../runtime/open-boot.ts";
import type { SandboxScope } from "./scope.ts";

/**
 * Fields of the status to be as given, and `null` to be gone. A field that is an object is replaced as a whole: a plain merge
 * patch would leave members of the one before in it, such as the retry time of a failed operation in the next one.
 */
export type SandboxStatusPatch = { readonly [Field in keyof SandboxStatus]?: SandboxStatus[Field] | null };

/** What a write needs to know of its pass. */
export interface RecordScope extends Pick<SandboxScope, "sandbox" | "context"> {
  readonly dependencies: Pick<SandboxScope["dependencies"], "sandboxClient">;
}

/** What this pass has judged is not the boot that is recorded now: the pass ends. */
export class BootOvertaken extends Overtaken {
  override readonly name = "BootOvertaken";
}

/** The Sandbox of this pass is gone or is another one: the pass ends. */
export class SandboxGone extends Overtaken {
  override readonly name = "SandboxGone";
}

/**
 * Compare-and-swap on the object this pass judged. A conflict ends the pass: what was judged may no longer hold. For intents
 * (`Hibernating`, a boot), where a touch that came first must win.
 */
export async function recordIntent(scope: RecordScope, fields: SandboxStatusPatch): Promise<void> {
  const { name, namespace, resourceVersion } = scope.sandbox.metadata;
  const status = replacing(scope.sandbox.status ?? {}, fields);
  scope.sandbox = await unlessGone(
    scope,
    scope.dependencies.sandboxClient.patchStatus(
      { name, ...(namespace === undefined ? {} : { namespace }) },
      { metadata: { resourceVersion }, status },
      { signal: scope.context.signal },
    ),
  );
}

/** The cache may show an object that the API server has let go: `SandboxGone`. */
async function unlessGone(scope: RecordScope, write: Promise<Sandbox>): Promise<Sandbox> {
  try {
    return await write;
  } catch (error) {
    if (!isNotFound(error)) throw error;
    throw gone(scope, error);
  }
}

function gone({ sandbox }: RecordScope, cause?: unknown): SandboxGone {
  const { name, namespace, uid } = sandbox.metadata;
  return new SandboxGone(`Sandbox ${namespace}/${name} (${uid}) does not exist any more`, { cause });
}

/** The merge patch that makes each given field exactly what is given. */
function replacing(before: object, fields: SandboxStatusPatch): Record<string, unknown> {
  const present: Readonly<Record<string, unknown>> = Object.fromEntries(Object.entries(before));
  const patch: Record<string, unknown> = {};
  for (const [field, value] of Object.entries(fields)) {
    if (value === undefined) continue;
    const changed = mergePatchBetween({ [field]: present[field] }, { [field]: value });
    if (changed) patch[field] = changed[field];
  }
  return patch;
}

/**
 * Progress of an operation that is under way. A gateway may have touched in between: the patch is computed again from what
 * is there now. `patch` may return undefined when there is nothing left to write.
 */
export async function recordProgress(
  scope: RecordScope,
  patch: (sandbox: Sandbox) => SandboxStatusPatch | undefined,
): Promise<void> {
  await onLatest(scope, async () => {
    const status = patch(scope.sandbox);
    if (status) await recordIntent(scope, status);
  });
}

/** Begins with the object of this pass, and reads it afresh after a conflict. */
async function onLatest(scope: RecordScope, attempt: () => Promise<void>): Promise<void> {
  await retryOnConflict(attempt, async () => {
    scope.sandbox = await readSame(scope);
  });
}

/**
 * Before what ends a boot: the cache may be behind that end, and even behind the boot after it. Throws `BootOvertaken`; else
 * the pass goes on with the object as it is now.
 */
export async function demandSameBoot(scope: RecordScope): Promise<void> {
  const fresh = await readSame(scope);
  const [judged, now] = [scope.sandbox, fresh].map(
    ({ status }) => `boot ${status?.compute?.boot ?? "none"}, operation ${status?.operation?.id ?? "none"}`,
  );
  if (judged !== now) throw new BootOvertaken(`${judged} was judged, and ${now} is recorded`);
  scope.sandbox = fresh;
}

/**
 * Fresh read of the very same object. Throws `SandboxGone`, and `BootOvertaken` where somebody has written another's container
 * into it: from there on this pass would act on that one.
 */
export async function readSame(scope: RecordScope): Promise<Sandbox> {
  const { name, namespace, uid } = scope.sandbox.metadata;
  const options = { signal: scope.context.signal };
  try {
    const fresh = await scope.dependencies.sandboxClient.get(
      { name, ...(namespace === undefined ? {} : { namespace }) },
      options,
    );
    if (fresh.metadata.uid === uid) return demandOwnCompute(fresh);
  } catch (error) {
    if (!isNotFound(error)) throw error;
  }
  throw gone(scope);
}

function demandOwnCompute(sandbox: Sandbox): Sandbox {
  if (!namesForeignCompute(sandbox)) return sandbox;
  const { metadata, status } = sandbox;
  throw new BootOvertaken(
    `status names ${status.compute?.id}, which is not of Sandbox ${metadata.namespace}/${metadata.name}`,
  );
}

/**
 * The finalizer is there before compute can be, and goes after it. To add it is an intent: a conflict ends the pass. It is not
 * taken from a Sandbox that has compute by now.
 */
export async function recordFinalizer(scope: RecordScope, present: boolean): Promise<void> {
  if (present) return patchFinalizer(scope, true);
  try {
    await onLatest(scope, async () => {
      if (!scope.sandbox.status?.compute) await patchFinalizer(scope, false);
    });
  } catch (error) {
    // An object that is gone has no finalizer.
    if (!(error instanceof SandboxGone)) throw error;
  }
}

/** Takes the finalizer off whatever status says: the caller has written down what is left, or said that it could not. */
export async function dropFinalizer(scope: RecordScope): Promise<void> {
  try {
    await onLatest(scope, () => patchFinalizer(scope, false));
  } catch (error) {
    if (!(error instanceof SandboxGone)) throw error;
  }
}

async function patchFinalizer(scope: RecordScope, present: boolean): Promise<void> {
  const finalizers = scope.sandbox.metadata.finalizers ?? [];
  if (finalizers.includes(SANDBOX_FINALIZER) === present) return;
  const { name, namespace, resourceVersion } = scope.sandbox.metadata;
  const after = present
    ? [...finalizers, SANDBOX_FINALIZER]
    : finalizers.filter((finalizer) => finalizer !== SANDBOX_FINALIZER);
  scope.sandbox = await unlessGone(
    scope,
    scope.dependencies.sandboxClient.patch(
      { name, ...(namespace === undefined ? {} : { namespace }) },
      { metadata: { resourceVersion, finalizers: after } },
      { signal: scope.context.signal },
    ),
  );
}

/** ISO time of this pass with milliseconds; deadlines need them. */
export const isoNow = (scope: RecordScope): string => new Date(scope.context.clock.now()).toISOString();
