/** A whole run: parts, operators, agents at work, faults, settling, rest, removal, audit. */
import { cp, mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { NeverHappened, systemErrorCode } from "../../hack/parts/errors.ts";
import { OPERATOR_NAMESPACE } from "../../hack/parts/operator.ts";
import { installationId } from "../../operator/src/installation.ts";
import { NAMESPACES } from "../../operator/src/kube/resource-types.ts";
import type { ClusterAccess } from "./auditor/hosts.ts";
import { TagWatch } from "./auditor/tags.ts";
import { VersionReader } from "./auditor/versions.ts";
import { Witness } from "./auditor/witness.ts";
import { type AuditReport, audit } from "./auditor.ts";
import { Board } from "./board.ts";
import { type DrawnFault, drawFaults } from "./draw/faults.ts";
import { seeded } from "./draw/random.ts";
import { type Struck, strike, type Theatre } from "./faults.ts";
import { CALM, type Coverage } from "./gate/control.ts";
import { type Ground, prepareGround } from "./ground.ts";
import { Ledger } from "./ledger.ts";
import { Operators } from "./operators.ts";
import { Workload } from "./workload.ts";

export interface Performance {
  readonly seed: number;
  /** Random faults. */
  readonly faults: number;
  /** Chosen faults instead of drawn ones. */
  readonly chosen?: readonly DrawnFault[];
  /** Kill the operator at every point once. */
  readonly everyPoint: boolean;
  readonly lanes: number;
  readonly restMs: number;
  /** Sessions that are left at rest, half of them running, each in a World of its own. */
  readonly sessionsAtRest: number;
  /** Folder for ledger, logs and trace of a run with findings. */
  readonly evidence: string;
  readonly say: (sentence: string) => void;
  readonly signal: AbortSignal;
}

export interface Performed {
  readonly struck: readonly Struck[];
  readonly coverage: Coverage;
  readonly report: AuditReport;
  readonly strayEnds: readonly string[];
  /** What did not end in time. */
  readonly unsettled: readonly string[];
  readonly lives: number;
  readonly seconds: number;
}

/** Kills at points go on until no new one was seen for so long. */
const NO_NEW_POINT_MS = 25_000;
const MOST_COVERING_MS = 25 * 60_000;
/** The longest back-off of a snapshot is 5 min (docs/spec/sandbox.md), and one attempt may follow it. */
const SETTLED_WITHIN_MS = 8 * 60_000;
const QUIET_MS = 4_000;
/** Who waits for the settling is told what for. */
const TOLD_MS = 10_000;

export async function perform(performance: Performance): Promise<Performed> {
  const since = Date.now();
  const { say, signal } = performance;
  await using undo = new AsyncDisposableStack();
  say("parts: control plane, engine, registry, and a fault proxy before each");
  const ground = undo.use(await prepareGround(signal));
  const ledgerPath = join(ground.directory, "ledger.jsonl");
  const ledger = undo.use(new Ledger(ledgerPath));
  const board = undo.use(new Board({ kubeconfigPath: ground.cluster.kubeconfigPath, ledger }));
  signal.addEventListener("abort", () => board.close(), { once: true });
  const installation = await installationId(board.kube, { namespace: OPERATOR_NAMESPACE }, signal);
  const operators = undo.use(new Operators(operatorsOn(ground)));
  const reader = new VersionReader(ground.registry.url);
  const tags = undo.use(new TagWatch(reader, () => repositoriesAtWork(board)));
  const witness = new Witness({ reader, ledger: () => ledger.entries() });
  const random = seeded(performance.seed);
  const workload = undo.use(
    new Workload({
      ground,
      board,
      ledger,
      witness,
      random: random.fork("workload"),
      lanes: performance.lanes,
      installation,
    }),
  );
  const theatre = { ground, operators, board };
  const stage = { ...theatre, workload };
  try {
    say("two operator processes, lease 2 s");
    // From the start: what is done once, such as the network of a host, is passed before the first session runs.
    await operators.start({ uncovered: performance.everyPoint });
    await untilAtWork(stage, performance);
    if (performance.everyPoint) await killAtEveryPoint(performance, stage);
    const drawn = performance.chosen ?? drawFaults(random.fork("faults"), performance.faults);
    const struck = await strikeAll(performance, theatre, drawn);
    const unsettled = await settle(performance, stage);
    const rest = await measureRest(performance, stage);
    unsettled.push(...(await removeAll(performance, stage)));
    const { coverage, strayEnds } = operators;
    say("audit: the registry's bytes, the engine's containers, the API server's objects and its audit log");
    const report = await audit({
      ledger: ledger.entries(),
      registry: { url: ground.registry.url, dataDirectory: ground.registry.dataDirectory },
      engineSocket: ground.engine.dockerHost.replace(/^unix:\/\//, ""),
      installation,
      cluster: await accessTo(ground),
      auditLogPath: ground.cluster.auditLogPath,
      rest: { ...rest, agent: "agent-worlds" },
      tags: tags.seen,
      witnessed: witness.seen,
    });
    const performed = { struck, coverage, report, strayEnds, unsettled, lives: workload.lives };
    const isClean = report.findings.length + strayEnds.length + unsettled.length === 0;
    if (!isClean) await keepEvidence(performance, ground);
    return { ...performed, seconds: (Date.now() - since) / 1000 };
  } catch (error) {
    await keepEvidence(performance, ground);
    throw error;
  }
}

interface Stage extends Theatre {
  readonly workload: Workload;
}

function operatorsOn(ground: Ground) {
  return {
    directory: ground.directory,
    kubeconfigPath: ground.operatorKubeconfigPath,
    directKubeconfigPath: ground.cluster.kubeconfigPath,
    settings: {
      role: "controller",
      registry: { url: ground.registryProxy.url },
      sources: { development: "Enabled" },
      leader: { leaseDurationSeconds: 2, renewDeadlineSeconds: 1.5, retryPeriodSeconds: 0.2 },
      limits: { deletionDeadlineSeconds: 120, drainSeconds: 5 },
      metrics: { port: 0 },
      health: { port: 0 },
    },
  };
}

const repositoriesAtWork = (board: Board): string[] =>
  board.allWorlds().flatMap(({ status }) => {
    const isAtWork = status?.holder !== undefined || status?.pending !== undefined;
    return isAtWork && status.repository !== undefined ? [status.repository.replace(/^[^/]+\//, "")] : [];
  });

/** The first sessions run: a fault before that would hit nothing. */
async function untilAtWork({ board }: Stage, { signal, everyPoint }: Performance): Promise<void> {
  await board.until(
    () => {
      signal.throwIfAborted();
      return board.allSandboxes().some(({ status }) => status.compute?.provisionedAt !== undefined) ? true : undefined;
    },
    { what: "the first session", timeoutMs: everyPoint ? MOST_COVERING_MS : 120_000 },
  );
}

async function killAtEveryPoint({ say, signal }: Performance, { operators, ground }: Stage): Promise<void> {
  say("the operator is killed at every point once, whenever one is passed at which nobody has died yet");
  operators.set({ uncovered: true });
  const began = Date.now();
  let known = 0;
  let lastNew = Date.now();
  while (Date.now() - began < MOST_COVERING_MS) {
    signal.throwIfAborted();
    await pause(2_000);
    const deaths = operators.deaths().length;
    if (deaths > known) {
      say(`  ${deaths} deaths, the last one ${operators.deaths().at(-1)?.moment} ${operators.deaths().at(-1)?.name}`);
      known = deaths;
      lastNew = Date.now();
    }
    if (operators.coverage.uncovered.length === 0 && Date.now() - lastNew > NO_NEW_POINT_MS) break;
    if (Date.now() - lastNew > 3 * NO_NEW_POINT_MS) break;
  }
  const { covered, uncovered } = operators.coverage;
  say(`  ${covered.length} of ${covered.length + uncovered.length} points seen so far (${ground.namespace})`);
}

async function strikeAll(
  { say, signal }: Performance,
  theatre: Theatre,
  drawn: readonly DrawnFault[],
): Promise<Struck[]> {
  const struck: Struck[] = [];
  for (const [index, fault] of drawn.entries()) {
    signal.throwIfAborted();
    const one = await strike(theatre, fault);
    struck.push(one);
    const hit = one.cameTrue ? `${one.inFlight.length} in flight` : "missed";
    say(`${String(index + 1).padStart(4)} ${one.kind}: ${one.detail} (${one.seconds.toFixed(1)} s, ${hit})`);
  }
  return struck;
}

/**
 * No fault any more, and no new session but those that are to rest: whatever is on its way comes to its end by itself.
 */
async function settle(
  { say, everyPoint, sessionsAtRest }: Performance,
  { operators, board, workload }: Stage,
): Promise<string[]> {
  // A point that is passed here for the first time is one more to die at.
  operators.set({ ...CALM, uncovered: everyPoint });
  say("no more faults; everything under way comes to its end");
  const since = Date.now();
  using _ = every(TOLD_MS, () => say(`  still on its way: ${board.stillWaitedFor()}`));
  const [ended, begun] = await Promise.all([
    within(SETTLED_WITHIN_MS, workload.rest()),
    within(SETTLED_WITHIN_MS, beginRest(workload, sessionsAtRest)),
  ]);
  const left = await until(board, () => board.inFlight().length === 0, SETTLED_WITHIN_MS);
  say(`  settled after ${Math.round((Date.now() - since) / 1000)} s`);
  return [
    ...(ended ? [] : ["sessions did not end"]),
    ...(begun ? [] : ["sessions that are to rest did not begin"]),
    ...(left ? [] : board.inFlight()),
    ...workload.failures,
  ];
}

async function beginRest(workload: Workload, count: number): Promise<void> {
  for (let settled = 0; settled < count; settled += 4) {
    const now = Array.from({ length: Math.min(4, count - settled) }, (_, index) =>
      workload.settle((settled + index) % 2 === 0 ? "Running" : "Hibernated"),
    );
    await Promise.all(now);
  }
}

async function measureRest(
  { say, restMs }: Performance,
  { board, operators }: Stage,
): Promise<{ from: number; to: number }> {
  operators.set({ ...CALM });
  await operators.leader();
  await board.fresh();
  // The last Events and summaries are on their way for a moment.
  await pause(QUIET_MS);
  const running = board.allSandboxes().filter(({ status }) => status.compute !== undefined).length;
  say(`${board.allWorlds().length} Worlds at rest, ${running} sessions running: ${restMs / 1000} s without a write`);
  const from = Date.now();
  await pause(restMs);
  return { from, to: Date.now() };
}

/** Everything is deleted as a user would. What does not go is left for the audit to find. */
async function removeAll(
  { say, signal, everyPoint }: Performance,
  { board, operators, workload, ground }: Stage,
): Promise<string[]> {
  say("everything is deleted");
  operators.set({ uncovered: everyPoint });
  const ended = await within(SETTLED_WITHIN_MS, workload.finish());
  await workload.finishWorlds();
  const gone = await until(board, () => board.allWorlds().length + board.allSandboxes().length === 0, 60_000);
  const namespaces = board.kube.resource(NAMESPACES);
  await namespaces.delete({ name: ground.namespace }, { signal });
  const list = async () => (await namespaces.list({ signal })).items.map(({ metadata }) => metadata.name);
  for (let waited = 0; waited < 60_000 && (await list()).includes(ground.namespace); waited += 500) await pause(500);
  return [
    ...(ended ? [] : ["sessions did not end when they were deleted"]),
    ...(gone ? [] : ["objects did not go when they were deleted"]),
  ];
}

/** Whether it came to be in time. */
async function until(board: Board, check: () => boolean, timeoutMs: number): Promise<boolean> {
  try {
    await board.fresh();
    await board.until(() => (check() ? true : undefined), { what: "settling", timeoutMs });
    return true;
  } catch (error) {
    if (error instanceof NeverHappened) return false;
    throw error;
  }
}

async function within(milliseconds: number, work: Promise<void>): Promise<boolean> {
  const late = Promise.withResolvers<boolean>();
  const timer = setTimeout(() => late.resolve(false), milliseconds);
  try {
    return await Promise.race([work.then(() => true), late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

async function accessTo({ cluster }: Ground): Promise<ClusterAccess> {
  const { users } = JSON.parse(await readFile(cluster.kubeconfigPath, "utf8"));
  const pem = (field: string): string => Buffer.from(users[0].user[field], "base64").toString("utf8");
  const tls = { ca: cluster.caPem, cert: pem("client-certificate-data"), key: pem("client-key-data") };
  return { url: cluster.url, tls };
}

async function keepEvidence({ evidence, say }: Performance, ground: Ground): Promise<void> {
  await mkdir(evidence, { recursive: true });
  for (const name of ["ledger.jsonl", "operators.log", "trace.jsonl", "deaths.jsonl"]) {
    await cp(join(ground.directory, name), join(evidence, name), { force: true }).catch(unlessAbsent);
  }
  for (const path of [ground.cluster.auditLogPath, join(ground.directory, "registry", "registry.log")]) {
    await cp(path, join(evidence, path.split("/").at(-1) ?? "log"), { force: true });
  }
  say(`evidence: ${evidence}`);
}

/** A run that failed early has not written everything. */
function unlessAbsent(error: unknown): void {
  if (systemErrorCode(error) !== "ENOENT") throw error;
}

function every(milliseconds: number, act: () => void): Disposable {
  const timer = setInterval(act, milliseconds);
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

const pause = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds));
