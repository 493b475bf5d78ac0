/** The platform of a version, from its image config. */
import type { Platform } from "@agentworlds/crds";
import { z } from "zod";
import { parseJson } from "../registry/answer.ts";
import type { Descriptor, RegistryClient } from "../registry/contract.ts";
import { RegistryError } from "../registry/errors.ts";

const configSchema = z.object({ os: z.string(), architecture: z.string() });

export async function platformOfConfig(
  client: RegistryClient,
  { repository, config }: { readonly repository: string; readonly config: Descriptor },
  signal: AbortSignal,
): Promise<Platform> {
  const bytes = await client.getBlob(repository, { digest: config.digest }, signal);
  const { os, architecture } = parseJson(bytes, configSchema, "the image config");
  const platform = `${os}/${architecture}`;
  if (platform === "linux/amd64" || platform === "linux/arm64") return platform;
  throw new RegistryError("UnsupportedImage", `its config ${config.digest} is of ${platform}`);
}
