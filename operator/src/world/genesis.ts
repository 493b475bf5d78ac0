/** Version 0: the source image, resolved to a digest once and copied into the World's own repository (DESIGN §3). */
import { type Platform, sourceOf, type World } from "@agentworlds/crds";
import { Waiting } from "../reconciler/policy.ts";
import type { PhaseResult } from "../reconciler/reconcile.ts";
import { CONTINUE } from "../reconciler/reconcile.ts";
import type { Digest } from "../registry/contract.ts";
import type { CopiedSource } from "../registry/sources.ts";
import { explainNotReady, selectRuntime } from "../runtime/selection.ts";
import { withoutVolumes } from "../snapshot/image-config.ts";
import { manifestOfVersion, putVersion, readBackVersion } from "../snapshot/publish.ts";
import { isSpoilt, timeAfter } from "../snapshot/spoilt-manifest.ts";
import { creatorOf } from "./creator.ts";
import { enterLineage } from "./lineage-index.ts";
import { repositoryInRegistry } from "./own-repository.ts";
import { demandNoPreviousLineage } from "./previous.ts";
import type { WorldScope } from "./scope.ts";
import { explainOwnRegistryErrors, explainSourceErrors } from "./source-errors.ts";

/** Every World has one genesis, so its operation id derives from the World. */
export const genesisOperation = (world: World): string => `genesis-${world.metadata.uid}`;

/** Copies the source image and publishes it as version 0. */
export async function becomeGenesis(scope: WorldScope): Promise<PhaseResult> {
  if (scope.world.status?.head || scope.world.metadata.deletionTimestamp) return CONTINUE;
  const source = imageOf(scope.world);
  if (source === undefined) return CONTINUE;
  const platform = await platformOfRuntime(scope);
  const repository = repositoryInRegistry(scope);
  // A reservation says that it was looked before.
  if (!scope.world.status?.pending) await demandNoPreviousLineage(scope);
  await enterLineage(scope);
  const copied = await explainSourceErrors(source, () =>
    scope.dependencies.sources.copyInto(source, { repository, platform }, scope.context.signal),
  );
  await publishGenesis(scope, {
    image: source,
    repository,
    platform,
    ...copied,
    config: withoutVolumes(copied.config),
  });
  scope.dependencies.announce(
    { kind: "World", object: scope.world },
    {
      type: "Normal",
      reason: "GenesisReady",
      action: "Publish",
      message: `version 0 is ${source} (${copied.sourceDigest}, ${platform})`,
    },
  );
  return CONTINUE;
}

/** Undefined: the World starts from something else (adoption.ts). */
function imageOf({ spec }: World): string | undefined {
  const source = sourceOf(spec);
  return source.kind === "Image" ? source.image : undefined;
}

async function publishGenesis(
  scope: WorldScope,
  genesis: CopiedSource & { readonly image: string; readonly repository: string; readonly platform: Platform },
): Promise<void> {
  const { writer, registry } = scope.dependencies;
  const { signal, clock } = scope.context;
  const operation = genesisOperation(scope.world);
  const reservation = await writer.reserve(scope.ref, { operation, at: new Date(clock.now()).toISOString() }, signal);
  if (reservation.kind === "refused")
    throw new Waiting(reservation.reason, { message: reservation.message, afterMs: 5_000 });
  // What fails from here on is told by a write that knows of the reservation.
  scope.world = await writer.read(scope.ref, signal);
  if (reservation.kind !== "committed") {
    const { version, since } = reservation.pending;
    const createdBy = creatorOf(scope.world);
    const { image } = genesis;
    const description = scope.world.spec.description ?? "";
    const totalBytes = genesis.layers.reduce((sum, layer) => sum + layer.size, 0);
    const manifest = manifestOfVersion(
      {
        operation,
        world: scope.ref,
        version,
        reason: "Genesis",
        consistency: "Image",
        description,
        createdBy,
        causedBy: createdBy,
        createdAt: since,
        genesis: { image, digest: genesis.sourceDigest, platform: genesis.platform },
        sizeBytes: totalBytes,
      },
      { config: genesis.config, layers: genesis.layers },
    );
    const digest = await explainOwnRegistryErrors("publishing version 0", () =>
      putGenesis(scope, { repository: genesis.repository, since, manifest, config: genesis.config }),
    );
    await writer.commit(
      scope.ref,
      {
        operation,
        image: `${registry.asWeNameIt(genesis.repository)}@${digest}`,
        genesis: { image, digest: genesis.sourceDigest, platform: genesis.platform },
        version: {
          version,
          digest,
          operation,
          sizeBytes: totalBytes,
          totalBytes,
          layers: genesis.layers.length,
          createdAt: since,
          reason: "Genesis",
          consistency: "Image",
          description,
          causedBy: createdBy,
        },
      },
      signal,
    );
  }
  scope.world = await writer.read(scope.ref, signal);
}

/** A manifest that is spoilt is not put again: the next try has another time. The number stays, a genesis has no other. */
async function putGenesis(
  scope: WorldScope,
  { repository, since, ...content }: { repository: string; since: string; manifest: Uint8Array; config: Uint8Array },
): Promise<Digest> {
  const { writer, registry } = scope.dependencies;
  const { signal, clock } = scope.context;
  const access = { client: registry.client, repository };
  const digest = await putVersion(access, content, signal);
  try {
    await readBackVersion(access, digest, signal);
  } catch (error) {
    if (await isSpoilt(access, error, signal)) {
      const renewal = { operation: genesisOperation(scope.world), at: timeAfter(since, clock.now()) };
      await writer.renew(scope.ref, renewal, signal);
      scope.world = await writer.read(scope.ref, signal);
    }
    throw error;
  }
  return digest;
}

/** The platform is fixed at genesis; until then the Runtime's decides. */
async function platformOfRuntime(scope: WorldScope): Promise<Platform> {
  const { namespaces, runtimes } = scope.dependencies;
  const namespace = await namespaces.get({ name: scope.ref.namespace }, { signal: scope.context.signal });
  const verdict = selectRuntime(runtimes.list(), {
    name: scope.world.spec.runtime?.name,
    namespace: scope.ref.namespace,
    namespaceLabels: namespace.metadata.labels ?? {},
  });
  if (verdict.kind === "missing") {
    throw new Waiting(verdict.reason, { message: verdict.message, remediation: verdict.remediation, afterMs: 60_000 });
  }
  const platform = verdict.runtime.status?.platform;
  if (platform === "linux/amd64" || platform === "linux/arm64") return platform;
  throw new Waiting("RuntimeNotReady", { ...explainNotReady(verdict.runtime), afterMs: 15_000 });
}
