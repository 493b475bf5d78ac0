/**
 * Everything the Sandbox controller works with, in memory and with counted effects, for tests that end the operator between
 * any two of them.
 */
import type { Runtime, Sandbox, World, WorldVerb } from "@agentworlds/crds";
import { isConflict } from "../kube/errors.ts";
import { NAMESPACES, RUNTIMES, SANDBOXES, SECRETS, type Secret, WORLDS } from "../kube/resource-types.ts";
import { PassDeadlineExceeded } from "../reconciler/deadline.ts";
import { silentLog } from "../reconciler/log.ts";
import { Terminal, Waiting } from "../reconciler/policy.ts";
import type { Reconcile } from "../reconciler/reconcile.ts";
import { createTestClock } from "../reconciler/test-clock.test-kit.ts";
import { installationRegistry, worldRepository } from "../registry/installation.ts";
import { RuntimeError } from "../runtime/errors.ts";
import { memoryResource } from "../runtime/memory-resource.test-kit.ts";
import { createRuntimeRescues } from "../runtime/rescues.ts";
import { createComputeSearch } from "../runtime/search.ts";
import { sessionEnvironment } from "../runtime/session-environment.ts";
import { at, runtimeOf, sandboxOf, T0, versionOf, worldOf } from "../runtime/test-objects.test-kit.ts";
import { createDockerCommit } from "../snapshot/docker-commit.ts";
import { MemoryRegistry } from "../snapshot/memory-registry.test-kit.ts";
import { reconcileWorlds } from "../world/controller.ts";
import type { AnnouncedEvent, NamespaceObject, WorldDependencies } from "../world/scope.ts";
import { createWorldStatusWriter } from "../world/status-writer.ts";
import { AdmissionDesk } from "./admission.ts";
import { reconcileSandboxes } from "./controller.ts";
import { Effects, tracedRegistry, tracedResource } from "./counted-effects.test-kit.ts";
import { MemoryHost, putImage } from "./memory-host.test-kit.ts";
import type { SandboxDependencies } from "./scope.ts";

const REPOSITORY = worldRepository("worlds", {
  installation: "install",
  namespace: "team",
  world: "lab",
  uid: "world-uid",
});
const REF = { namespace: "team", name: "one" };
const WORLD = { namespace: "team", name: "lab" };
const ABLE = ["exec", "freeze", "commit", "cpuLimit", "memoryLimit", "pidsLimit", "isolatedNetwork"];
/** Passes until a test calls it stuck. */
const MOST_PASSES = 400;

/** A World with its genesis, one Runtime of one host, one Sandbox, and an operator that can be killed. */
export async function memoryParts(options: {
  sandbox?: Parameters<typeof sandboxOf>[0];
  kill?: { index: number; when: "before" | "after" };
  /** The World's controller runs too. */
  withWorld?: boolean;
}) {
  const effects = new Effects(options.kill);
  const clock = createTestClock(T0);
  const registry = new MemoryRegistry();
  const host = new MemoryHost(effects, registry);
  const genesis = versionOf(0, { digest: await putImage(registry, ["base"], "v0") });
  const secrets = memoryResource<Secret>(SECRETS, []);
  const worlds = memoryResource<World>(WORLDS, [
    worldOf({
      status: {
        repository: `127.0.0.1:5055/${REPOSITORY}`,
        genesis: { image: "busybox:1", digest: genesis.digest, platform: "linux/amd64" },
        head: { version: 0, digest: genesis.digest, image: `127.0.0.1:5055/${REPOSITORY}@${genesis.digest}` },
        versions: [genesis],
        nextVersion: 1,
      },
    }),
  ]);
  const runtimes = memoryResource<Runtime>(RUNTIMES, [
    runtimeOf({
      spec: { selection: "Default" },
      status: {
        platform: "linux/amd64",
        capabilities: ABLE,
        hosts: [{ name: "a", state: "Reachable", used: 0 }],
      },
    }),
  ]);
  const sandboxes = memoryResource<Sandbox>(SANDBOXES, [
    sandboxOf({ ...options.sandbox, spec: { ttlSeconds: 600, ...options.sandbox?.spec } }),
  ]);
  const namespaces = memoryResource<NamespaceObject>(NAMESPACES, [
    { metadata: { name: "team", uid: "namespace-uid", resourceVersion: "1" } },
  ]);
  const client = tracedRegistry(registry.client, effects);

  let stale: { world: World | undefined } | undefined;
  let staleSandbox: Sandbox | undefined;
  let others: readonly Sandbox[] = [];
  const cachedSandbox = (): Sandbox | undefined => staleSandbox ?? sandboxes.peek(REF);
  const cachedWorld = (): World | undefined => (stale ? stale.world : worlds.peek(WORLD));

  const allRuntimes = () => [runtimes.peek({ name: "local" })].filter((one) => one !== undefined);
  const hosts = new Map([["a", host]]);
  const driverFor: SandboxDependencies["driverFor"] = async (runtime, name) => {
    const found = hosts.get(name);
    if (isHostSilent || !found || !runtimes.peek({ name: runtime })) {
      throw new RuntimeError("HostUnreachable", `${runtime}/${name} does not answer`);
    }
    return found.driver;
  };

  const dependencies = (): SandboxDependencies => ({
    installation: "install",
    sandboxes: { get: cachedSandbox, list: () => [cachedSandbox(), ...others].filter((one) => one !== undefined) },
    sandboxClient: tracedResource("Sandbox", sandboxes, effects),
    worlds: { get: cachedWorld, list: () => [cachedWorld()].filter((one) => one !== undefined) },
    worldWriter: createWorldStatusWriter(tracedResource("World", worlds, effects)),
    runtimes: {
      get: (name) => runtimes.peek({ name }),
      list: allRuntimes,
    },
    runtimeRescues: createRuntimeRescues(tracedResource("Runtime", runtimes, effects)),
    namespaces,
    driverFor,
    search: createComputeSearch({ installation: "install", runtimes: { list: allRuntimes }, drivers: { driverFor } }),
    environmentOf: (sandbox, signal) => sessionEnvironment(sandbox, secrets, signal),
    registry: installationRegistry({ client, prefix: "worlds" }),
    sources: {
      copyInto: () => Promise.reject(new TypeError("the Sandbox controller copies nothing")),
      resolve: async () => genesis.digest,
      async login() {
        if (loginRefusal) throw loginRefusal;
        return sourceLogin;
      },
      pin: (image, digest) => `${image}@${digest}`,
    },
    snapshots: createDockerCommit(installationRegistry({ client, prefix: "worlds" })),
    admission: desk,
    announce: ({ kind }, event) => void events.push({ kind, ...event }),
    log: silentLog,
    limits: { deletionDeadlineMs: 600_000, rescueAfterMs: 600_000, bootDeadlineMs: 900_000 },
  });
  const desk = new AdmissionDesk();
  const sourceLogin = { username: "source", password: "of the source" };
  let loginRefusal: Error | undefined;
  let isHostSilent = false;
  const worldDependencies = (): WorldDependencies => {
    const shared = dependencies();
    return {
      ...shared,
      writer: shared.worldWriter,
      findingsOf: () => undefined,
      computeOf: async () => (isHostSilent ? "unknown" : host.containers.size > 0 ? "some" : "none"),
      metrics: { rescueRetried: () => undefined, workLost: () => undefined },
    };
  };
  const events: (AnnouncedEvent & { readonly kind: string })[] = [];
  let reconcile = reconcileSandboxes(dependencies());
  let reconcileWorld = reconcileWorlds(worldDependencies());
  const failures: string[] = [];
  let passing = new AbortController();

  /** One pass, as the loop makes it; returns the milliseconds after which the next is due. */
  async function pass(): Promise<number> {
    const before = effects.seen.length;
    const restMs = options.withWorld ? 60_000 : 1_000;
    const sandboxDue = await passOf("team/one", (...call) => reconcile(...call), restMs);
    if (!options.withWorld || sandboxDue === undefined) return sandboxDue ?? 1_000;
    const worldDue = await passOf("team/lab", (...call) => reconcileWorld(...call), restMs);
    // What was written makes whoever reads it due at once.
    return effects.seen.length > before ? 0 : Math.min(sandboxDue, worldDue ?? 1_000);
  }

  /** Undefined: the process ended in it. */
  async function passOf(key: string, controller: Reconcile, restMs: number): Promise<number | undefined> {
    passing = new AbortController();
    const context = { signal: passing.signal, process: new AbortController().signal, clock, reconcileId: "test" };
    try {
      return (await controller(key, context)).requeueAfterMs ?? restMs;
    } catch (error) {
      failures.push(String(error));
      if (error instanceof Terminal) throw error;
      if (error instanceof Waiting) return error.afterMs;
      if (isConflict(error)) return 0;
      if (error instanceof PassDeadlineExceeded) return 1_000;
      // Whatever a dying process made of it, the next one begins anew.
      effects.restart();
      reconcile = reconcileSandboxes(dependencies());
      reconcileWorld = reconcileWorlds(worldDependencies());
      return undefined;
    } finally {
      collectGarbage();
    }
  }

  /** The API server removes what is deleted once the last finalizer has gone. */
  function collectGarbage(): void {
    const isGone = (metadata: Sandbox["metadata"] | undefined) =>
      metadata?.deletionTimestamp !== undefined && !metadata.finalizers?.length;
    if (isGone(sandboxes.peek(REF)?.metadata)) sandboxes.drop(REF);
    if (isGone(worlds.peek(WORLD)?.metadata)) worlds.drop(WORLD);
  }

  const change = (edit: (sandbox: Sandbox) => Sandbox): void => {
    const found = sandboxes.peek(REF);
    if (found) sandboxes.put(edit(found));
  };

  return {
    effects,
    clock,
    registry,
    host,
    events,
    runtimes,
    sandboxes,
    failures,
    genesis,
    dependencies,
    /** Runs when no admission is under way. */
    inTurn: (run: () => Promise<void>) => desk.inTurn(run, new AbortController().signal),
    pass,
    sandbox: () => sandboxes.peek(REF),
    world(): World {
      const found = worlds.peek(WORLD);
      if (!found) throw new TypeError("the World is gone");
      return found;
    },
    hasWorld: () => worlds.peek(WORLD) !== undefined,
    dropWorld: () => worlds.drop(WORLD),
    /** From now on the cache shows this, whatever becomes of the World; without an argument it is up to date again. */
    showCached(shown?: { world: World | undefined }) {
      stale = shown;
    },
    /** The same for the Sandbox. */
    showCachedSandbox(shown?: Sandbox) {
      staleSandbox = shown;
    },
    /** The cache has these Sandboxes, too. */
    showOthers(shown: readonly Sandbox[]) {
      others = shown;
    },
    silenceHost(isSilent = true) {
      isHostSilent = isSilent;
    },
    /** The source of a throwaway image lets nobody in; without an argument it does again. */
    refuseLogin(refusal?: Error) {
      loginRefusal = refusal;
    },
    changeRuntime(edit: (runtime: Runtime) => Runtime) {
      const found = runtimes.peek({ name: "local" });
      if (!found) throw new TypeError("the Runtime is gone");
      runtimes.put(edit(found));
    },
    /** The Runtime has one more host. One without a machine behind it does not answer. */
    addHost(name: string, machine?: MemoryHost) {
      const runtime = runtimes.peek({ name: "local" });
      if (!runtime?.spec.docker) throw new TypeError("the Runtime is gone");
      const added = { name, endpoint: "tcp://another:2376" };
      const docker = { ...runtime.spec.docker, hosts: [...runtime.spec.docker.hosts, added] };
      runtimes.put({ ...runtime, spec: { ...runtime.spec, docker } });
      if (machine) hosts.set(name, machine);
    },
    /** A verb about a rescue as a gateway records it. */
    askWorld: (verb: WorldVerb, operation: string, id: string) => {
      const found = worlds.peek(WORLD);
      if (!found) throw new TypeError("the World is gone");
      const request = { id, verb, parameters: { operation }, user: "ada", at: at(1) };
      worlds.put({ ...found, status: { ...found.status, requests: [...(found.status.requests ?? []), request] } });
    },
    deleteWorld() {
      const found = worlds.peek(WORLD);
      const deletionTimestamp = new Date(clock.now()).toISOString();
      if (found) worlds.put({ ...found, metadata: { ...found.metadata, deletionTimestamp } });
      collectGarbage();
    },
    dropRuntime: () => runtimes.drop({ name: "local" }),
    changeWorld: (edit: (world: World) => World) => void worlds.put(edit(worlds.peek(WORLD) ?? worldOf())),
    change,
    /** A verb as a gateway records it. */
    ask: (verb: "Touch" | "Snapshot" | "Close", id: string, user = "ada") =>
      change((sandbox) => ({
        ...sandbox,
        status: {
          ...sandbox.status,
          requests: [...(sandbox.status.requests ?? []), { id, verb, user, at: at(1) }],
        },
      })),
    delete() {
      const deletionTimestamp = new Date(clock.now()).toISOString();
      change((sandbox) => ({ ...sandbox, metadata: { ...sandbox.metadata, deletionTimestamp } }));
      collectGarbage();
    },
    /** The pass under way has taken too long. */
    cutOff: () => passing.abort(new PassDeadlineExceeded(1_000)),
    wasKilled: () => effects.wasKilled,
    /** Somebody works in the session. */
    work(entry: string) {
      const id = sandboxes.peek(REF)?.status.compute?.id ?? "";
      const container = host.containers.get(id);
      if (container?.state !== "Running") throw new TypeError(`nobody can work in ${id}: ${container?.state}`);
      container.work.push(entry);
    },
    /** Passes until the condition holds, time moving as the passes ask. */
    async until(what: string, holds: () => boolean): Promise<void> {
      for (let passes = 0; passes < MOST_PASSES; passes++) {
        if (holds()) return;
        clock.jump(Math.min(await pass(), 60_000));
      }
      throw new TypeError(
        `never ${what}: ${JSON.stringify(sandboxes.peek(REF)?.status)}; ${failures.slice(-3).join("; ")}`,
      );
    },
  };
}
