/** What every Runtime and every World says of work, read afresh: an engine can be a host of several Runtimes. */
import type { Runtime, RuntimeRescue, World } from "@agentworlds/crds";
import type { ResourceClient } from "../kube/contract.ts";
import { listAll } from "../kube/list-all.ts";
import type { ListedCapture, ListedCompute } from "./contract.ts";
import { isFull, isOfItsSession } from "./rescues.ts";

export interface KeptWork {
  readonly worlds: readonly World[];
  readonly rescues: readonly RuntimeRescue[];
  /** Operations of rescues that a World names: it tends them. */
  readonly tended: ReadonlySet<string>;
  /** Operations that ended in a version, or in work that was given up aloud. */
  readonly settled: ReadonlySet<string>;
  /** A Runtime's list is full, so that not everything that is kept is named. */
  readonly isFull: boolean;
}

/**
 * Worlds first: a rescue is written on its Runtime before it is written on its World, and ends in the opposite order or as a
 * version, so that it is seen on one of the two.
 */
export async function readKeptWork(
  clients: { readonly worlds: ResourceClient<World>; readonly runtimes: ResourceClient<Runtime> },
  signal: AbortSignal,
): Promise<KeptWork> {
  const worlds = await listAll(clients.worlds, { signal });
  const runtimes = await listAll(clients.runtimes, { signal });
  const onWorlds = worlds.flatMap(({ metadata, status }) =>
    (status?.rescues ?? []).map((rescue) => ({ ...rescue, namespace: metadata.namespace ?? "" })),
  );
  const onRuntimes = runtimes.flatMap(({ status }) => status?.rescues ?? []);
  return {
    worlds,
    rescues: [...onWorlds, ...onRuntimes],
    tended: new Set(onWorlds.map(({ operation }) => operation)),
    settled: new Set(worlds.flatMap(({ status }) => [...settledOperations(status)])),
    isFull: runtimes.some(({ status }) => isFull(status?.rescues ?? [])),
  };
}

/** Operations whose end a World names: a version, or work that was given up aloud. */
export const settledOperations = (status: World["status"]): ReadonlySet<string> =>
  new Set([...(status?.versions ?? []), ...(status?.lostWork ?? [])].map(({ operation }) => operation));

/** Whether the record is of this very container. */
export const keeps = (
  rescue: Pick<RuntimeRescue, "computeId" | "sandbox" | "namespace">,
  { id, owner }: Pick<ListedCompute, "id" | "owner">,
): boolean => rescue.computeId === id && isOfItsSession(rescue, { namespace: rescue.namespace, owner });

/** Whether the record is of this very capture. */
export const keepsCapture = (
  { sandbox, namespace }: Pick<RuntimeRescue, "sandbox" | "namespace">,
  { owner }: Pick<ListedCapture, "owner">,
): boolean => owner.sandboxUid === sandbox.uid && owner.namespace === namespace;

/** Whether any rescue keeps this container; one that says on which engine is not believed about another. */
export const isKept = (
  { rescues }: Pick<KeptWork, "rescues">,
  container: ListedCompute & { readonly engine: string },
): boolean =>
  rescues.some(
    (rescue) => keeps(rescue, container) && (rescue.engine === undefined || rescue.engine === container.engine),
  );
