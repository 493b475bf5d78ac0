/**
 * What is on a host that no Sandbox accounts for. A container may hold unpublished work, so it is stopped, written down as a
 * rescue, and removed only after the Runtime's `rescueSeconds` (DESIGN §4.3). A capture is a copy of what a container held,
 * and goes once neither an operation nor a rescue names it.
 */
import type { Runtime, RuntimeRescue, Sandbox, World } from "@agentworlds/crds";
import type { ResourceClient } from "../kube/contract.ts";
import { isNotFound } from "../kube/errors.ts";
import type { Log } from "../reconciler/log.ts";
import type { ComputeOwner, ListedCapture, ListedCompute, RuntimeDriver } from "./contract.ts";
import { isRuntimeError } from "./errors.ts";
import { lastEndedBoot, mayHaveUnnamedCompute, ownCompute } from "./open-boot.ts";
import { rescueEndsAt } from "./rescue-time.ts";
import { isFull, isOfItsSession, type RuntimeRescues } from "./rescues.ts";

export interface SweepContext {
  readonly runtime: Runtime;
  readonly host: string;
  readonly driver: RuntimeDriver;
  readonly installation: string;
  readonly sandboxes: ResourceClient<Sandbox>;
  readonly worlds: { list(): readonly World[] };
  readonly rescues: RuntimeRescues;
  readonly now: number;
  readonly log: Log;
  readonly signal: AbortSignal;
}

export interface Swept {
  /** Rescues whose time is over; their containers and captures are gone. */
  readonly over: readonly RuntimeRescue[];
  /** Containers that were written down as orphans. */
  readonly orphans: readonly ListedCompute[];
}

/** A capture may be younger than what was read of its Sandbox. */
const CAPTURE_MIN_AGE_MS = 600_000;

/** Quarantines the orphans of one host, removes rescues whose time is over, and captures that nobody names. */
export async function sweepHost(sweep: SweepContext): Promise<Swept> {
  const { runtime, host, driver, signal } = sweep;
  const kept = (runtime.status?.rescues ?? []).filter((rescue) => rescue.host === host);
  const present = await driver.list(sweep.installation, signal);
  const captures = await driver.listCaptures(sweep.installation, signal);
  await recordWhatWorldsName(sweep, { present, captures });
  const orphans: ListedCompute[] = [];
  for (const compute of present) {
    const rescue = kept.find((one) => keeps(one, compute));
    if (rescue) {
      await stopKept(sweep, rescue, compute);
      continue;
    }
    if (await isAccountedFor(sweep, compute)) continue;
    if (await quarantine(sweep, compute)) orphans.push(compute);
  }
  const over: RuntimeRescue[] = [];
  for (const rescue of kept.filter((one) => isOver(one, runtime, sweep.now) && !isTendedByWorld(sweep, one))) {
    const { namespace, sandbox } = rescue;
    const compute = present.find((one) => keeps(rescue, one));
    const owner = compute?.owner ?? { namespace, sandbox: sandbox.name, sandboxUid: sandbox.uid };
    if (await isNamed(sweep, { owner, id: rescue.computeId })) continue;
    await removeRescue(sweep, rescue, { compute, captures });
    over.push(rescue);
  }
  for (const capture of captures) {
    if (await isNeeded(sweep, capture)) continue;
    await removeCapture(sweep, capture.localName);
  }
  return { over, orphans };
}

/** Whether the record is of this very container. */
const keeps = (
  rescue: Pick<RuntimeRescue, "computeId" | "sandbox" | "namespace">,
  { id, owner }: ListedCompute,
): boolean => rescue.computeId === id && isOfItsSession(rescue, { namespace: rescue.namespace, owner });

/** Whether the record is of this very capture. */
const keepsCapture = ({ sandbox, namespace }: Pick<RuntimeRescue, "sandbox" | "namespace">, { owner }: ListedCapture) =>
  owner.sandboxUid === sandbox.uid && owner.namespace === namespace;

interface OnHost {
  readonly present: readonly ListedCompute[];
  readonly captures: readonly ListedCapture[];
}

/**
 * A rescue that found the Runtime's list full, or no Runtime, is named by its World alone, which it holds: only the Runtime's
 * record ends that one day.
 */
async function recordWhatWorldsName(
  { runtime, host, worlds, rescues, signal }: SweepContext,
  found: OnHost,
): Promise<void> {
  const { name } = runtime.metadata;
  const recorded = new Set(runtime.status?.rescues?.map((rescue) => rescue.operation));
  for (const world of worlds.list()) {
    for (const { runtime: keeper, attempts: _, retryAt: __, lastError: ___, ...rescue } of world.status?.rescues ??
      []) {
      if (keeper !== name || rescue.host !== host || recorded.has(rescue.operation)) continue;
      const { namespace = "", name: worldName, uid: worldUid } = world.metadata;
      const record = { ...rescue, namespace, world: worldName, worldUid };
      // The cache may show one that was dealt with a moment ago: then there is nothing left on the host.
      const isThere =
        found.present.some((compute) => keeps(record, compute)) ||
        found.captures.some((capture) => capture.operation === rescue.operation && keepsCapture(record, capture));
      if (isThere) await rescues.record(name, record, signal);
    }
  }
}

/**
 * Its host may have been silent when the work was kept: then the session has run on. One that its Sandbox still names is that
 * Sandbox's to end: the operator ended between the record and the end of the session.
 */
async function stopKept(sweep: SweepContext, rescue: RuntimeRescue, compute: ListedCompute) {
  const { driver, host, log, signal } = sweep;
  const { id, state } = compute;
  if (state === "Exited" || (await isNamed(sweep, compute))) return;
  if (!(await isOnThisEngine(sweep, rescue))) return;
  await driver.stop(id, signal);
  log.warn({ host, computeId: id, operation: rescue.operation }, "a container that is kept as a rescue still ran");
}

/** The same name on another engine is another container. */
const isOnThisEngine = async ({ driver, signal }: SweepContext, { engine }: RuntimeRescue): Promise<boolean> =>
  engine === undefined || engine === (await driver.identity(signal));

/** Whether the Sandbox, as it is stored now, names the container as its own. */
async function isNamed(
  sweep: SweepContext,
  { owner, id }: { readonly owner: Parameters<typeof sandboxOf>[1]; readonly id: string },
): Promise<boolean> {
  const found = await sandboxOf(sweep, owner);
  return found !== undefined && ownCompute(found)?.id === id;
}

const isOver = (rescue: RuntimeRescue, runtime: Runtime, now: number): boolean =>
  now >= rescueEndsAt(rescue, runtime, now);

/** A World that names it tries a last time to publish it, and says what is lost. */
const isTendedByWorld = ({ worlds }: SweepContext, { operation }: RuntimeRescue): boolean =>
  worlds.list().some((world) => (world.status?.rescues ?? []).some((rescue) => rescue.operation === operation));

/** What was not listed is gone, and what is listed as another's stays, whatever the record says. */
async function removeRescue(
  sweep: SweepContext,
  rescue: RuntimeRescue,
  found: { readonly compute: ListedCompute | undefined; readonly captures: readonly ListedCapture[] },
): Promise<void> {
  const { driver, host, log, signal } = sweep;
  const { computeId, operation, capture } = rescue;
  signal.throwIfAborted();
  if (!(await isOnThisEngine(sweep, rescue))) {
    log.warn(
      { host, computeId, operation, engine: rescue.engine },
      "the time of a rescue is over on an engine that is not there",
    );
    return;
  }
  if (found.compute) await driver.remove(found.compute.id, signal);
  const copy = found.captures.find(({ localName }) => localName === capture);
  if (copy && keepsCapture(rescue, copy)) await removeCapture(sweep, copy.localName);
  log.warn({ host, computeId, operation, capture }, "rescued work was removed: its time is over");
}

/** One that somebody made a container of, to look into it, is refused by the host: a later sweep finds it again. */
async function removeCapture({ driver, host, log, signal }: SweepContext, localName: string): Promise<void> {
  signal.throwIfAborted();
  try {
    await driver.forgetCommit(localName, signal);
    log.info({ host, capture: localName }, "a capture that nobody needs was removed");
  } catch (error) {
    if (!isRuntimeError(error, "HostRefused")) throw error;
    log.warn({ host, capture: localName, err: error }, "a capture that nobody needs cannot be removed yet");
  }
}

/**
 * A fresh read decides, not the cache: intent is recorded before a container is made, so a container of a boot that its Sandbox
 * has written down as ended belongs to nobody. What the engine calls itself says nothing here: an engine can change its name
 * under a running session, and the name of a container is made of what status cannot change.
 */
async function isAccountedFor(sweep: SweepContext, { owner, id }: ListedCompute): Promise<boolean> {
  const sandbox = await sandboxOf(sweep, owner);
  if (!sandbox) return false;
  const compute = ownCompute(sandbox);
  if (compute?.id === id) return true;
  return owner.boot > lastEndedBoot(sandbox) && (compute !== undefined || mayHaveUnnamedCompute(sandbox));
}

/** The Sandbox as it is stored now; undefined when it is gone or another one has its name. */
async function sandboxOf(
  sweep: SweepContext,
  owner: Pick<ComputeOwner, "namespace" | "sandbox" | "sandboxUid">,
): Promise<Sandbox | undefined> {
  try {
    const sandbox = await sweep.sandboxes.get(
      { namespace: owner.namespace, name: owner.sandbox },
      { signal: sweep.signal },
    );
    return sandbox.metadata.uid === owner.sandboxUid ? sandbox : undefined;
  } catch (error) {
    if (isNotFound(error)) return undefined;
    throw error;
  }
}

/** Returns whether it was written down by this call. */
async function quarantine(sweep: SweepContext, { owner, id }: ListedCompute): Promise<boolean> {
  const { driver, signal } = sweep;
  if ((await driver.inspect(id, signal)).state === "Absent") return false;
  await driver.stop(id, signal);
  const outcome = await sweep.rescues.record(
    sweep.runtime.metadata.name,
    {
      operation: `orphan-${owner.sandboxUid}-${owner.boot}`,
      namespace: owner.namespace,
      sandbox: { name: owner.sandbox, uid: owner.sandboxUid },
      host: sweep.host,
      computeId: id,
      reason: "Orphaned",
      message: "no Sandbox accounts for this container; it is stopped and kept",
      since: new Date(sweep.now).toISOString(),
      expiresAt: new Date(sweep.now + (sweep.runtime.spec.rescueSeconds ?? 86_400) * 1000).toISOString(),
    },
    signal,
  );
  if (outcome !== "Recorded") return false;
  sweep.log.warn({ host: sweep.host, computeId: id, sandbox: owner.sandbox }, "an orphaned container was quarantined");
  return true;
}

/** Where status has lost its operation and the container is gone, a capture of the boot may be all that is left of the work. */
async function mayNeed({ driver, signal }: SweepContext, sandbox: Sandbox, capture: ListedCapture): Promise<boolean> {
  const { operation, owner } = capture;
  const { operation: current } = sandbox.status;
  const compute = ownCompute(sandbox);
  if (current) return current.id === operation;
  if (compute) return compute.boot === owner.boot && (await driver.inspect(compute.id, signal)).state === "Absent";
  return mayHaveUnnamedCompute(sandbox) && owner.boot > lastEndedBoot(sandbox);
}

/**
 * In this order: a rescue is written down before its Sandbox forgets the operation, so whoever does not see the operation any
 * more sees the rescue. A full list cannot name everything that is kept.
 */
async function isNeeded(sweep: SweepContext, capture: ListedCapture): Promise<boolean> {
  if (sweep.now - capture.createdAt < CAPTURE_MIN_AGE_MS) return true;
  const sandbox = await sandboxOf(sweep, capture.owner);
  if (sandbox && (await mayNeed(sweep, sandbox, capture))) return true;
  const rescues = await sweep.rescues.kept(sweep.runtime.metadata.name, sweep.signal);
  if (isFull(rescues)) return true;
  const onWorlds = sweep.worlds.list().flatMap((world) => world.status?.rescues ?? []);
  return [...rescues, ...onWorlds].some(
    (rescue) => rescue.operation === capture.operation || rescue.capture === capture.localName,
  );
}
