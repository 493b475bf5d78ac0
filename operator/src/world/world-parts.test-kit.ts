/** Everything the World controller works with, in memory: a World with versions in a registry, and one pass at a time. */
import type { Runtime, Sandbox, World, WorldVersion } from "@agentworlds/crds";
import { NAMESPACES, RUNTIMES, SANDBOXES, WORLDS } from "../kube/resource-types.ts";
import { silentLog } from "../reconciler/log.ts";
import { Terminal, Waiting } from "../reconciler/policy.ts";
import type { ReconcileResult } from "../reconciler/reconcile.ts";
import { createTestClock } from "../reconciler/test-clock.test-kit.ts";
import { MEDIA_TYPES } from "../registry/contract.ts";
import { digestOf } from "../registry/digest.ts";
import { installationRegistry, worldRepository } from "../registry/installation.ts";
import { RuntimeError } from "../runtime/errors.ts";
import { memoryResource } from "../runtime/memory-resource.test-kit.ts";
import { createRuntimeRescues } from "../runtime/rescues.ts";
import { sandboxOf, T0, versionOf, worldOf } from "../runtime/test-objects.test-kit.ts";
import { createDockerCommit } from "../snapshot/docker-commit.ts";
import { MemoryRegistries } from "../snapshot/memory-registries.test-kit.ts";
import { reconcileWorlds } from "./controller.ts";
import { type PublishedVersion, putHistory } from "./published-history.test-kit.ts";
import type { AnnouncedEvent, ComputeOf, NamespaceObject } from "./scope.ts";
import { createWorldStatusWriter, WORLD_FINALIZER } from "./status-writer.ts";
import type { LineageFindings } from "./verification.ts";

const REF = { namespace: "team", name: "lab" };
export const REPOSITORY = worldRepository("worlds", {
  installation: "install",
  namespace: "team",
  world: "lab",
  uid: "world-uid",
});

/** How a pass ended. */
export type PassEnd = ReconcileResult | Waiting | Terminal;

/** A World whose versions `0…newest` are in the registry, untagged, or those of `history`, tagged. */
export function worldParts(
  options: {
    newest?: number;
    /** Versions as a publication left them, tagged, instead of bare ones. */
    history?: readonly PublishedVersion[];
    world?: Parameters<typeof worldOf>[0];
    sandboxes?: readonly Parameters<typeof sandboxOf>[0][];
    runtimes?: readonly Runtime[];
    compute?: () => ReturnType<ComputeOf>;
    deletionDeadlineMs?: number;
    /** The source image can be copied. */
    image?: "Offered";
  } = {},
) {
  const clock = createTestClock(T0);
  const registries = new MemoryRegistries();
  const registry = registries.repository(REPOSITORY);
  const versions: WorldVersion[] = [];
  putHistory(registry, options.history ?? []);
  versions.push(...(options.history ?? []).map(({ entry }) => entry));
  for (let number = 0; number <= (options.newest ?? 2) && !options.history; number++) {
    const bytes = new TextEncoder().encode(JSON.stringify({ mediaType: MEDIA_TYPES.ociManifest, number }));
    registry.manifests.set(digestOf(bytes), bytes);
    versions.push(versionOf(number, { digest: digestOf(bytes) }));
  }
  const head = versions.at(-1) ?? versionOf(0);
  const worlds = memoryResource<World>(WORLDS, [
    worldOf({
      ...options.world,
      metadata: { generation: 1, ...options.world?.metadata },
      status: {
        repository: `127.0.0.1:5055/${REPOSITORY}`,
        genesis: { image: "busybox:1", digest: head.digest, platform: "linux/amd64" },
        head: { version: head.version, digest: head.digest, image: `127.0.0.1:5055/${REPOSITORY}@${head.digest}` },
        versions,
        nextVersion: head.version + 1,
        ...options.world?.status,
      },
    }),
  ]);
  const sandboxes = memoryResource<Sandbox>(SANDBOXES, (options.sandboxes ?? []).map(sandboxOf));
  const namespaces = memoryResource<NamespaceObject>(NAMESPACES, [
    { metadata: { name: "team", uid: "namespace-uid", resourceVersion: "1" } },
  ]);
  const runtimes = [...(options.runtimes ?? [])];
  const events: AnnouncedEvent[] = [];
  let cachedSandboxes: readonly Sandbox[] | undefined;
  let cachedWorld: World | undefined;
  let findings: LineageFindings | undefined;
  const reconcile = reconcileWorlds({
    installation: "install",
    writer: createWorldStatusWriter(worlds),
    worlds: { get: () => cachedWorld ?? worlds.peek(REF), list: () => [] },
    sandboxes: { get: () => undefined, list: () => cachedSandboxes ?? [...peekAll()] },
    sandboxClient: sandboxes,
    runtimes: { get: (name) => runtimes.find((runtime) => runtime.metadata.name === name), list: () => runtimes },
    namespaces,
    registry: installationRegistry({ client: registries.client, prefix: "worlds" }),
    sources: {
      copyInto: async (image, { repository }) => {
        if (options.image === undefined) throw new TypeError("this World has its genesis");
        const config = new TextEncoder().encode(
          '{"os":"linux","architecture":"amd64","rootfs":{"type":"layers","diff_ids":[]}}',
        );
        registries.repository(repository).blobs.set(digestOf(config), config);
        return { sourceDigest: digestOf(new TextEncoder().encode(image)), config, layers: [] };
      },
      resolve: () => Promise.reject(new TypeError("the World controller resolves nothing")),
      login: () => Promise.reject(new TypeError("the World controller lets no host pull")),
      pin: () => "",
    },
    findingsOf: () => findings,
    computeOf: options.compute ?? (async () => "none"),
    driverFor: async () => Promise.reject(new RuntimeError("HostUnreachable", "no host answers here")),
    snapshots: createDockerCommit(installationRegistry({ client: registry.client, prefix: "worlds" })),
    runtimeRescues: createRuntimeRescues(memoryResource<Runtime>(RUNTIMES, options.runtimes ?? [])),
    metrics: { rescueRetried: () => undefined, workLost: () => undefined },
    announce: (_about, event) => void events.push(event),
    log: silentLog,
    limits: { deletionDeadlineMs: options.deletionDeadlineMs ?? 600_000 },
  });

  function* peekAll(): Iterable<Sandbox> {
    for (const one of options.sandboxes ?? []) {
      const { name, namespace } = sandboxOf(one).metadata;
      const found = sandboxes.peek({ name, ...(namespace === undefined ? {} : { namespace }) });
      if (found) yield found;
    }
  }

  return {
    clock,
    registries,
    /** The World's own repository. */
    registry,
    worlds,
    sandboxes,
    runtimes,
    events,
    versions,
    head,
    /** The caches show this from now on, whatever is stored. */
    showCached(shown: { sandboxes?: readonly Sandbox[]; world?: World }): void {
      cachedSandboxes = shown.sandboxes;
      cachedWorld = shown.world;
    },
    /** What the verification found. */
    find(damaged: LineageFindings["damaged"]): void {
      findings = { at: clock.now(), damaged };
    },
    world: (): World | undefined => worlds.peek(REF),
    change(edit: (world: World) => World): void {
      const found = worlds.peek(REF);
      if (found) worlds.put(edit(found));
    },
    condition: (type: string) => worlds.peek(REF)?.status.conditions?.find((condition) => condition.type === type),
    reasons: () => events.map(({ reason }) => reason),
    /** One pass as the loop makes it; what the API server does to a deleted World without finalizers is done after it. */
    async pass(): Promise<PassEnd> {
      try {
        const context = { signal: new AbortController().signal, clock, reconcileId: "test" };
        return await reconcile("team/lab", context);
      } catch (error) {
        if (error instanceof Waiting || error instanceof Terminal) return error;
        throw error;
      } finally {
        const metadata = worlds.peek(REF)?.metadata;
        if (metadata?.deletionTimestamp && !metadata.finalizers?.length) worlds.drop(REF);
      }
    },
  };
}

/** Fields of a World that is being deleted and has this controller's finalizer. */
export const deleting = { deletionTimestamp: new Date(T0).toISOString(), finalizers: [WORLD_FINALIZER] };
