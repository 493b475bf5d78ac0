/**
 * What the cluster still knows of an installation whose Secret is gone: the id in the repositories of its Worlds, and objects
 * that have a container somewhere and cannot say under which id it was made. Under a new one every such container would count
 * as somebody else's, its session as lost, and head would boot beside it (DESIGN §4.2, §4.9).
 */
import type { Runtime, Sandbox, World } from "@agentworlds/crds";
import type { KubeClient } from "./kube/contract.ts";
import { listAll } from "./kube/list-all.ts";
import { RUNTIMES, SANDBOXES, WORLDS } from "./kube/resource-types.ts";

export const INSTALLATION_ID = /^[a-z0-9]{4,32}$/;

export interface InstallationTraces {
  /** For each id one object that names it, as `World team/lab`. */
  readonly named: ReadonlyMap<string, string>;
  /** An object of the installation that names no id. */
  readonly unnamed: string | undefined;
}

export async function installationTraces(kube: KubeClient, signal: AbortSignal): Promise<InstallationTraces> {
  const named = new Map<string, string>();
  let unnamed: string | undefined;
  for (const world of await listAll(kube.resource<World>(WORLDS), { signal })) {
    const repository = world.status?.repository;
    if (repository === undefined) continue;
    const id = installationOf(repository);
    if (id === undefined) unnamed ??= nameOf("World", world);
    else if (!named.has(id)) named.set(id, nameOf("World", world));
  }
  const sandboxes = await listAll(kube.resource<Sandbox>(SANDBOXES), { signal });
  const running = sandboxes.find(({ status }) => status?.compute !== undefined);
  const runtimes = await listAll(kube.resource<Runtime>(RUNTIMES), { signal });
  const keeper = runtimes.find(({ status }) => (status?.rescues ?? []).length > 0);
  unnamed ??= running && nameOf("Sandbox", running);
  unnamed ??= keeper && nameOf("Runtime", keeper);
  return { named, unnamed };
}

/** From `registry/prefix/installation/namespace/world-uid`; the prefix may have several parts. */
function installationOf(repository: string): string | undefined {
  const id = repository.split("/").at(-3);
  return id !== undefined && INSTALLATION_ID.test(id) ? id : undefined;
}

const nameOf = (kind: string, { metadata: { namespace, name } }: World | Sandbox | Runtime): string =>
  `${kind} ${namespace === undefined ? "" : `${namespace}/`}${name}`;

/**
 * Why nothing may start without the Secret; undefined when nothing speaks against it. An id is never taken from the objects
 * alone: in a cluster that was copied they name the original, whose containers are not this one's.
 */
export function explainForgotten(
  { named, unnamed }: InstallationTraces,
  wanted: string | undefined,
): string | undefined {
  const ids = [...named].map(([id, object]) => `${id} (${object})`).join(", ");
  if (wanted !== undefined) {
    if (named.size === 0 || named.has(wanted)) return undefined;
    return `the setting installation is ${wanted}, and Worlds live under ${ids}: correct the setting, or restore the Secret`;
  }
  const [first, ...more] = named;
  if (first) {
    const [id, object] = first;
    return more.length === 0
      ? `${object} lives under installation ${id}: restore the Secret, or set installation to ${id}, unless that is another cluster's`
      : `Worlds live under installations ${ids}: restore the Secret, or set installation to the one that is this cluster's`;
  }
  if (unnamed === undefined) return undefined;
  return `${unnamed} has containers or versions of an installation that it does not name: restore the Secret, or set installation to what the containers' label agentworlds.dev/installation says`;
}
