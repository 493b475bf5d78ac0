import { randomUUID } from "node:crypto";
import { z } from "zod";
import { RuntimeError } from "../errors.ts";
import type { Containers } from "./containers.ts";
import { tolerate } from "./engine-errors.ts";
import type { Images } from "./images.ts";
import { ENGINE_LABEL, INSTALLATION_LABEL } from "./labels.ts";
import type { EngineTransport } from "./transport.ts";

/** Name of the volume that says, in a label, which engine this is to an installation. */
export const engineVolumeName = (installation: string): string => `agentworlds-engine-${installation}`;

export interface MarkerParts {
  readonly transport: EngineTransport;
  readonly containers: Pick<Containers, "engines">;
  readonly images: Pick<Images, "listCommits">;
  readonly installation: string;
}

const inspectedVolume = z.object({ Labels: z.record(z.string(), z.string()).nullish() });
const createdVolume = z.object({ Name: z.string() });

/**
 * The engine's id as its own data tells it. What an engine calls itself (`GET /info`) is no id of its containers: 20.10 keeps
 * it in a file of the machine that all its engines share, and makes a new one when that is gone. A volume lives and moves with
 * the containers. Whoever makes it first decides: the others read it back.
 *
 * A volume that no container uses goes by `docker volume prune`; what is left of sessions remembers its engine in a label, and
 * the marker is made anew as it was.
 */
export async function engineId(parts: MarkerParts, signal: AbortSignal): Promise<string> {
  const { transport, installation } = parts;
  const known = await readMarker(parts, signal);
  if (known !== undefined) return known;
  const id = (await rememberedId(parts, signal)) ?? randomUUID();
  const Labels = { [INSTALLATION_LABEL]: installation, [ENGINE_LABEL]: id };
  const json = { Name: engineVolumeName(installation), Labels };
  await transport.json(createdVolume, { method: "POST", path: "/volumes/create", json }, signal);
  const made = await readMarker(parts, signal);
  if (made === undefined) throw new RuntimeError("HostRefused", `the host does not keep volume ${json.Name}`);
  return made;
}

async function readMarker({ transport, installation }: MarkerParts, signal: AbortSignal): Promise<string | undefined> {
  const name = engineVolumeName(installation);
  const call = { method: "GET", path: `/volumes/${name}` } as const;
  const found = await transport.json(inspectedVolume, call, signal).catch(tolerate(404));
  if (found === undefined) return undefined;
  const id = found.Labels?.[ENGINE_LABEL];
  if (id === undefined)
    throw new RuntimeError(
      "HostRefused",
      `the host has a volume ${name} without the label ${ENGINE_LABEL}, which nobody but the operator should make: remove it`,
    );
  return id;
}

/** What all that is left of sessions here agrees on. */
async function rememberedId(
  { containers, images, installation }: MarkerParts,
  signal: AbortSignal,
): Promise<string | undefined> {
  const captures = await images.listCommits(installation, signal);
  const ids = new Set([
    ...(await containers.engines(installation, signal)),
    ...captures.flatMap(({ Labels }) => Labels?.[ENGINE_LABEL] ?? []),
  ]);
  const [id] = ids;
  return ids.size === 1 ? id : undefined;
}
