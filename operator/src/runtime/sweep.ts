/**
 * What is on a host that no Sandbox accounts for. A container may hold unpublished work, so it is stopped, written down as a
 * rescue, and removed only after the Runtime's `rescueSeconds` (DESIGN §4.3). A capture is a copy of what a container held,
 * and goes once neither an operation nor a rescue names it; one that may be the only copy becomes a rescue itself.
 */
import type { Runtime, RuntimeRescue, Sandbox } from "@agentworlds/crds";
import { isNotFound } from "../kube/errors.ts";
import { type ComputeOwner, computeName, type ListedCapture, type ListedCompute } from "./contract.ts";
import { isRuntimeError } from "./errors.ts";
import { isKept, type KeptWork, keeps, keepsCapture, readKeptWork } from "./kept-work.ts";
import { recordKept } from "./late-record.ts";
import { judgeCapture } from "./lone-captures.ts";
import { lastEndedBoot, mayHaveUnnamedCompute, ownCompute } from "./open-boot.ts";
import { keepCapture, quarantine } from "./orphans.ts";
import { rescueEndsAt } from "./rescue-time.ts";
import type { SweepContext } from "./sweep-context.ts";

export interface Swept {
  /** Rescues whose time is over; their containers and captures are gone. */
  readonly over: readonly RuntimeRescue[];
  /** What nobody accounted for, as it was written down. */
  readonly orphans: readonly RuntimeRescue[];
}

/** What the engine has of this installation. */
interface Found {
  readonly present: readonly ListedCompute[];
  readonly captures: readonly ListedCapture[];
}

/** Quarantines the orphans of one host, removes rescues whose time is over, and captures that nobody names. */
export async function sweepHost(sweep: SweepContext): Promise<Swept> {
  const { runtime, host, driver, signal } = sweep;
  const kept = (runtime.status?.rescues ?? []).filter((rescue) => rescue.host === host);
  const found: Found = {
    present: await driver.list(sweep.installation, signal),
    captures: await driver.listCaptures(sweep.installation, signal),
  };
  const strangers: ListedCompute[] = [];
  for (const compute of found.present) {
    const rescue = kept.find((one) => keeps(one, compute));
    if (rescue) await stopKept(sweep, rescue, compute);
    else if (!(await isAccountedFor(sweep, compute))) strangers.push(compute);
  }
  const unnamed: UnnamedCapture[] = [];
  for (const capture of found.captures) {
    const sandbox = await sandboxOf(sweep, capture.owner);
    if (sandbox && (await mayNeed(sweep, sandbox, capture))) continue;
    unnamed.push({ capture, hasSandbox: sandbox !== undefined });
  }
  // In this order: a rescue is written down before its Sandbox forgets it, so whoever is not named by its Sandbox any more is
  // named by the rescue.
  const work = await readKeptWork(sweep, signal);
  await recordWhatWorldsName(sweep, work, found);
  const orphans = [
    ...(await quarantineStrangers(sweep, strangers, work)),
    ...(await sweepCaptures(sweep, unnamed, { ...found, kept: work, now: sweep.now })),
  ];
  return { over: await removeOver(sweep, kept, { ...found, kept: work }), orphans };
}

async function quarantineStrangers(
  sweep: SweepContext,
  strangers: readonly ListedCompute[],
  work: KeptWork,
): Promise<RuntimeRescue[]> {
  if (strangers.length === 0) return [];
  const engine = await sweep.driver.identity(sweep.signal);
  const orphans: RuntimeRescue[] = [];
  for (const compute of strangers) {
    if (isKept(work, { ...compute, engine })) continue;
    const orphan = await quarantine(sweep, compute);
    if (orphan) orphans.push(orphan);
  }
  return orphans;
}

interface UnnamedCapture {
  readonly capture: ListedCapture;
  readonly hasSandbox: boolean;
}

async function sweepCaptures(
  sweep: SweepContext,
  unnamed: readonly UnnamedCapture[],
  findings: Found & { readonly kept: KeptWork; readonly now: number },
): Promise<RuntimeRescue[]> {
  const orphans: RuntimeRescue[] = [];
  for (const { capture, hasSandbox } of unnamed) {
    const verdict = judgeCapture(capture, { ...findings, hasSandbox });
    if (verdict === "remove") await removeCapture(sweep, capture.localName);
    const orphan = verdict === "orphan" ? await keepCapture(sweep, capture) : undefined;
    if (orphan) orphans.push(orphan);
  }
  return orphans;
}

/** A World that names a rescue tries a last time to publish it, and says what is lost. */
async function removeOver(
  sweep: SweepContext,
  kept: readonly RuntimeRescue[],
  found: Found & { readonly kept: KeptWork },
): Promise<RuntimeRescue[]> {
  const over: RuntimeRescue[] = [];
  const { tended } = found.kept;
  for (const rescue of kept.filter((one) => isOver(one, sweep.runtime, sweep.now) && !tended.has(one.operation))) {
    const { namespace, sandbox } = rescue;
    const compute = found.present.find((one) => keeps(rescue, one));
    const owner = compute?.owner ?? { namespace, sandbox: sandbox.name, sandboxUid: sandbox.uid };
    if (await isNamed(sweep, { owner, id: rescue.computeId })) continue;
    await removeRescue(sweep, rescue, { compute, captures: found.captures });
    over.push(rescue);
  }
  return over;
}

/**
 * A rescue that found the Runtime's list full, or no Runtime, is named by its World alone, which it holds: only the Runtime's
 * record ends that one day.
 */
async function recordWhatWorldsName(sweep: SweepContext, { worlds }: KeptWork, found: Found): Promise<void> {
  const { runtime, host } = sweep;
  const { name } = runtime.metadata;
  const recorded = new Set(runtime.status?.rescues?.map((rescue) => rescue.operation));
  for (const world of worlds) {
    for (const { runtime: keeper, attempts: _, retryAt: __, lastError: ___, ...rescue } of world.status?.rescues ??
      []) {
      if (keeper !== name || rescue.host !== host || recorded.has(rescue.operation)) continue;
      const { namespace = "", name: worldName, uid: worldUid } = world.metadata;
      const record = { ...rescue, namespace, world: worldName, worldUid };
      // It may have been dealt with a moment ago: then there is nothing left on the host.
      const isThere =
        found.present.some((compute) => keeps(record, compute)) ||
        found.captures.some((capture) => capture.operation === rescue.operation && keepsCapture(record, capture));
      if (isThere) await recordKept(sweep, record);
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
  const isOfRescue = ({ localName, operation }: ListedCapture) =>
    localName === capture || operation === rescue.snapshot?.operation;
  const copies = found.captures.filter((copy) => isOfRescue(copy) && keepsCapture(rescue, copy));
  for (const { localName } of copies) await removeCapture(sweep, localName);
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

/**
 * Its own operation's, or one that this is about to take the place of. Where the container of an open boot is gone, any capture
 * of that boot may be all that is left of the work.
 */
async function mayNeed({ driver, signal }: SweepContext, sandbox: Sandbox, capture: ListedCapture): Promise<boolean> {
  const { operation, owner } = capture;
  const { operation: current } = sandbox.status;
  if (current?.id === operation || current?.supersedes === operation) return true;
  if (owner.boot <= lastEndedBoot(sandbox)) return false;
  if (!ownCompute(sandbox)) return mayHaveUnnamedCompute(sandbox);
  return (await driver.inspect(computeName(owner), signal)).state === "Absent";
}
