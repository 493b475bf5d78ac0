/**
 * The image config of a version: always the genesis image's, with the version's layers. Nothing of the session's
 * container (keep-alive command, environment, labels) can get in, because it is never read.
 */
import { z } from "zod";
import { PublicationError } from "./errors.ts";

export { digestOf } from "../registry/digest.ts";

const history = z.looseObject({ empty_layer: z.boolean().optional() });

/** The parts of an OCI image config that are rewritten; everything else is carried over as it is. */
const imageConfig = z.looseObject({
  architecture: z.string(),
  os: z.string(),
  created: z.string().optional(),
  history: z.array(history).nullish(),
  rootfs: z.object({ type: z.literal("layers"), diff_ids: z.array(z.string()).nullable() }),
});

/** What a container of the image starts with. */
const containerSettings = z.looseObject({ Volumes: z.record(z.string(), z.unknown()).nullish() });

/** Docker leaves these beside `config`: the build container's own settings. They belong to no version. */
const BUILD_LEFTOVERS = ["container", "container_config", "docker_version", "id", "parent", "throwaway"] as const;

export function parseImageConfig(bytes: Uint8Array): z.infer<typeof imageConfig> {
  const parsed = imageConfig.safeParse(parseJson(bytes));
  if (!parsed.success) {
    throw new PublicationError("CaptureMalformed", `the image config is not one: ${z.prettifyError(parsed.error)}`);
  }
  return parsed.data;
}

function parseJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new PublicationError("CaptureMalformed", `the image config is no JSON: ${error.message}`, { cause: error });
  }
}

export interface ConfigOfVersion {
  /** Config of the version the session booted from; by induction, the genesis image's with that version's layers. */
  readonly baseConfig: Uint8Array;
  readonly diffIds: readonly string[];
  /** ISO time of the reservation, so that a retry makes the same bytes. */
  readonly createdAt: string;
}

/** Same input, same bytes. */
export function configOfVersion(input: ConfigOfVersion): Uint8Array {
  const base = parseImageConfig(input.baseConfig);
  const baseDiffIds = base.rootfs.diff_ids ?? [];
  const isBase = baseDiffIds.every((diffId, index) => input.diffIds[index] === diffId);
  if (!isBase) {
    throw new PublicationError(
      "CaptureMalformed",
      "the captured layers do not begin with the layers of the version it booted from",
    );
  }
  const kept = Object.fromEntries(
    Object.entries(base).filter(([key]) => !BUILD_LEFTOVERS.some((leftover) => leftover === key)),
  );
  const own = input.diffIds.slice(baseDiffIds.length).map(() => ({
    created: input.createdAt,
    created_by: "agent-worlds snapshot",
  }));
  const config = {
    ...kept,
    created: input.createdAt,
    // An engine checks that non-empty history entries match the layers; a genesis without history gets plain ones.
    history: [...historyOf(base.history ?? [], baseDiffIds.length, input.createdAt), ...own],
    rootfs: { type: "layers", diff_ids: input.diffIds },
  };
  return new TextEncoder().encode(JSON.stringify(config));
}

function historyOf(entries: readonly z.infer<typeof history>[], layers: number, createdAt: string) {
  const describing = entries.filter((entry) => entry.empty_layer !== true).length;
  if (describing === layers) return entries;
  return Array.from({ length: layers }, () => ({ created: createdAt, created_by: "agent-worlds genesis" }));
}

/**
 * The config without `VOLUME` declarations. An engine puts an anonymous volume over each such path, outside every capture:
 * what a session writes there would be lost without a word. In a World these are ordinary directories.
 */
export function withoutVolumes(bytes: Uint8Array): Uint8Array {
  const image = parseImageConfig(bytes);
  const settings = containerSettings.safeParse(image["config"]);
  if (!settings.success || Object.keys(settings.data.Volumes ?? {}).length === 0) return bytes;
  const { Volumes: _, ...kept } = settings.data;
  return new TextEncoder().encode(JSON.stringify({ ...image, config: kept }));
}
