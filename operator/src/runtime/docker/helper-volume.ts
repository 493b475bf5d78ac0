import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import { extract, pack } from "tar-stream";
import { z } from "zod";
import type { Clock } from "../../reconciler/clock.ts";
import { RuntimeError } from "../errors.ts";
import { HELPER_FILE, HELPER_MOUNT, HELPER_PATH, type HelperBinary } from "../helper.ts";
import { createOrFind } from "./claim-name.ts";
import type { Containers } from "./containers.ts";
import { tolerate } from "./engine-errors.ts";
import type { Images } from "./images.ts";
import { HELPER_LABEL } from "./labels.ts";
import type { EngineTransport } from "./transport.ts";

/** Name of the volume, and of its carrier, for one version of the helper. */
export const helperVolumeName = (helper: Pick<HelperBinary, "version">): string =>
  `agentworlds-helper-${helper.version}`;

export interface HelperVolumeParts {
  readonly transport: EngineTransport;
  readonly containers: Containers;
  readonly images: Images;
  readonly clock: Clock;
}

const HELPER_IMAGE = "agentworlds/helper";
const createdVolume = z.object({ Name: z.string() });

/**
 * Makes the host hold the helper in a volume of its own and returns the volume's name. Repeatable from any point: what is
 * there is read back and compared, never assumed.
 *
 * The volume is reached through its carrier: a container that is never started, made from an image that is imported
 * from a tar, so that no registry is needed. The carrier stays, because a volume that a container uses is not pruned.
 */
export async function ensureHelperVolume(
  parts: HelperVolumeParts,
  helper: HelperBinary,
  signal: AbortSignal,
): Promise<string> {
  const { transport } = parts;
  const name = helperVolumeName(helper);
  const labels = { [HELPER_LABEL]: helper.version };
  await transport.json(
    createdVolume,
    { method: "POST", path: "/volumes/create", json: { Name: name, Labels: labels } },
    signal,
  );
  await ensureCarrier(parts, helper, signal);
  if ((await storedSha256(transport, name, signal)) === helper.sha256) return name;
  const tar = await helperTar(helper, HELPER_FILE);
  const query = { path: HELPER_MOUNT };
  await transport.done({ method: "PUT", path: `/containers/${name}/archive`, query, tar, ms: 60_000 }, signal);
  if ((await storedSha256(transport, name, signal)) !== helper.sha256)
    throw new RuntimeError("HostRefused", `the host does not keep the helper in volume ${name} as it was written`);
  return name;
}

async function ensureCarrier(parts: HelperVolumeParts, helper: HelperBinary, signal: AbortSignal): Promise<void> {
  const { containers, images } = parts;
  const name = helperVolumeName(helper);
  if ((await containers.inspect(name, signal)) !== undefined) return;
  const image = { repository: HELPER_IMAGE, reference: helper.version };
  const label = [HELPER_LABEL, helper.version] as const;
  if ((await images.inspect(`${HELPER_IMAGE}:${helper.version}`, signal)) === undefined)
    await images.import(image, { tar: await helperTar(helper, HELPER_PATH.slice(1)), label }, signal);
  const config = {
    Image: `${HELPER_IMAGE}:${helper.version}`,
    Cmd: [HELPER_PATH, "version"],
    Labels: { [HELPER_LABEL]: helper.version },
    NetworkDisabled: true,
    HostConfig: {
      NetworkMode: "none",
      LogConfig: { Type: "none" },
      Mounts: [{ Type: "volume", Source: name, Target: HELPER_MOUNT, VolumeOptions: { NoCopy: true } }],
    },
  };
  await createOrFind(parts, { name, config }, signal);
  // Of imports at the same time the last one has the name. A prune that runs already (409) does the same work.
  await images.pruneNameless(label, signal).catch(tolerate(409));
}

/** Digest of the helper as the volume holds it, or undefined when it holds none. */
async function storedSha256(
  transport: EngineTransport,
  carrier: string,
  signal: AbortSignal,
): Promise<string | undefined> {
  const call = {
    method: "GET",
    path: `/containers/${carrier}/archive`,
    query: { path: HELPER_PATH },
    ms: 60_000,
  } as const;
  const hash = createHash("sha256");
  const reader = extract();
  reader.on("entry", (_header, content, next) => {
    content.on("data", (chunk) => {
      if (Buffer.isBuffer(chunk)) hash.update(chunk);
    });
    content.on("end", () => next());
  });
  try {
    await pipeline(Readable.from(transport.stream(call, signal)), reader);
  } catch (error) {
    return tolerate(404)(error);
  }
  return hash.digest("hex");
}

/** A tar that holds the helper alone, and the directories above it. */
async function helperTar(helper: HelperBinary, path: string): Promise<Buffer> {
  const archive = pack();
  const directory = path.slice(0, path.lastIndexOf("/") + 1);
  if (directory !== "") archive.entry({ name: directory, type: "directory", mode: 0o755 }, "");
  archive.entry({ name: path, mode: 0o755 }, Buffer.from(helper.bytes));
  archive.finalize();
  return await buffer(archive);
}
