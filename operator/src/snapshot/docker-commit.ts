/**
 * The first snapshot mechanism: the engine commits the container and pushes the result under a tag of the operation; we
 * keep its layers and drop its manifest and config. Known losses (layers.md §2.10): mtimes are cut to whole seconds and
 * xattrs other than capabilities are dropped. The snapshot engine replaces this file behind the same interface.
 */

import { Readable } from "node:stream";
import { z } from "zod";
import { digestInName } from "../registry/digest.ts";
import { isRegistryError } from "../registry/errors.ts";
import type { InstallationRegistry } from "../registry/installation.ts";
import type { ListedCapture } from "../runtime/contract.ts";
import { IMAGE_LABEL, ownerOf } from "../runtime/docker/labels.ts";
import { isRuntimeError } from "../runtime/errors.ts";
import type { CaptureOwner, CaptureRequest, SnapshotMechanism, UploadedCapture } from "./contract.ts";
import { PublicationError } from "./errors.ts";
import { parseImageConfig } from "./image-config.ts";
import { pushAside } from "./push-aside.ts";
import { isSpoilt } from "./spoilt-manifest.ts";
import { worldUidIn } from "./version-annotations.ts";

/** Local image name of an operation's commit. */
export const captureName = (operation: string): string => `agentworlds/capture:${operation}`;
const TAG_PREFIX = "capture-";
/** Tag the engine pushes to; gone once the version is published. */
export const captureTag = (operation: string): string => `${TAG_PREFIX}${operation}`;
/** The operation that pushed to this tag; undefined for any other tag. */
export const operationOfTag = (tag: string): string | undefined =>
  tag.startsWith(TAG_PREFIX) ? tag.slice(TAG_PREFIX.length) : undefined;

export function createDockerCommit(registry: InstallationRegistry): SnapshotMechanism {
  return {
    async capture(request, signal) {
      await request.driver.commit(request.computeId, captureName(request.operation), signal);
    },

    async isCaptured(request, signal) {
      return (await capturesNamed(request, signal)).some((capture) => isOf(capture, request.owner));
    },

    async upload(request, signal) {
      const tag = captureTag(request.operation);
      const target = { repository: registry.asHostsNameIt(request.repository), tag, login: registry.login };
      try {
        await request.driver.push(captureName(request.operation), target, signal);
      } catch (error) {
        if (!isRuntimeError(error, "PushFailed")) throw error;
        await demandWritable(registry, request, signal);
        await pushDespite(error, () =>
          pushAside(registry, { request, image: captureName(request.operation), tag }, signal),
        );
      }
      try {
        return await readPushed(registry, request, signal);
      } catch (error) {
        // Another commit has other bytes: an attempt that finds no capture makes one, as long as there is a container.
        const isOver = await isSpoilt({ client: registry.client, repository: request.repository }, error, signal);
        if (isOver && (await isStillThere(request, signal))) await this.forgetCapture(request, signal);
        throw error;
      }
    },

    async uploaded(request, signal) {
      try {
        return await readPushed(registry, request, signal);
      } catch (error) {
        if (isRegistryError(error, "NotFound")) return undefined;
        throw error;
      }
    },

    async forgetCapture(request, signal) {
      const [capture] = await capturesNamed(request, signal);
      if (!capture) return "Free";
      if (!isOf(capture, request.owner)) return "Foreign";
      await request.driver.forgetCommit(captureName(request.operation), signal);
      return "Free";
    },

    async forget(request, signal) {
      await this.forgetCapture(request, signal);
      await this.forgetUploaded(request, signal);
    },

    async forgetUploaded({ repository, operation, isVersion }, signal) {
      try {
        const { digest, manifest } = await registry.client.getManifest(repository, captureTag(operation), signal);
        const annotations = manifest.kind === "image" ? manifest.value.annotations : undefined;
        // No engine writes our annotations: what has them is a version, whether or not the World still lists it.
        if (worldUidIn(annotations) !== undefined || (await isVersion(digest))) return "IsVersion";
        signal.throwIfAborted();
        await registry.client.deleteManifest(repository, digest, signal);
        return "Dropped";
      } catch (error) {
        if (!isRegistryError(error, "NotFound")) throw error;
        return "Nothing";
      }
    },
  };
}

/** One name has one image: at most one capture, whosever it is. */
const capturesNamed = async (
  { operation, driver, owner }: Pick<CaptureRequest, "operation" | "driver" | "owner">,
  signal: AbortSignal,
): Promise<ListedCapture[]> =>
  (await driver.listCaptures(owner.installation, signal)).filter((capture) => capture.operation === operation);

const isStillThere = async ({ driver, computeId }: CaptureRequest, signal: AbortSignal): Promise<boolean> =>
  (await driver.inspect(computeId, signal)).state !== "Absent";

const isOf = ({ owner }: ListedCapture, wanted: CaptureOwner): boolean =>
  owner.namespace === wanted.namespace && owner.sandboxUid === wanted.sandboxUid;

/** An engine says that it could not push, and seldom why. Throws the registry's own reason when it takes nothing from us either. */
async function demandWritable(
  { client }: InstallationRegistry,
  { repository, operation }: Pick<CaptureRequest, "repository" | "operation">,
  signal: AbortSignal,
): Promise<void> {
  await client.uploadBlob(repository, Readable.from([Buffer.from(captureTag(operation))]), signal);
}

/** What failed first is the reason; a way round that is closed as well adds nothing to it. */
async function pushDespite(first: unknown, wayRound: () => Promise<void>): Promise<void> {
  try {
    await wayRound();
  } catch (error) {
    if (!isRuntimeError(error, "PushFailed")) throw error;
    throw first;
  }
}

/** An engine tags what it pushes last: whatever the tag names is there whole. */
async function readPushed(
  registry: InstallationRegistry,
  { repository, operation }: Pick<CaptureRequest, "repository" | "operation">,
  signal: AbortSignal,
): Promise<UploadedCapture> {
  const tag = captureTag(operation);
  const pushed = await registry.client.getManifest(repository, tag, signal);
  if (pushed.manifest.kind !== "image") {
    throw new PublicationError("CaptureMalformed", `the engine pushed an index to ${repository}:${tag}`);
  }
  const { config, layers } = pushed.manifest.value;
  const image = parseImageConfig(await registry.client.getBlob(repository, { digest: config.digest }, signal));
  const diffIds = image.rootfs.diff_ids;
  if (diffIds?.length !== layers.length) {
    throw new PublicationError(
      "CaptureMalformed",
      `the engine pushed ${layers.length} layers with ${diffIds?.length ?? 0} diffIDs`,
    );
  }
  return {
    layers,
    diffIds,
    ...originOf(image["config"]),
    ...(image.created === undefined ? {} : { capturedAt: image.created }),
  };
}

const labelled = z.object({ Labels: z.record(z.string(), z.string()).nullish() });

/** A commit carries its container's labels. */
function originOf(settings: unknown): Pick<UploadedCapture, "origin"> {
  const labels = labelled.safeParse(settings).data?.Labels ?? {};
  const owner = ownerOf(labels);
  if (owner === undefined) return {};
  const { sandboxUid, boot } = owner;
  const bootedFrom = digestInName(labels[IMAGE_LABEL]);
  return { origin: { sandboxUid, boot, ...(bootedFrom === undefined ? {} : { bootedFrom }) } };
}
