/** Worlds for the gateway: fresh reads, and the one field of their status that it may write. */
import { WORLDS, type World, type WorldRequest, worldSchema } from "@agentworlds/crds";
import type { KubeClient } from "../kube/contract.ts";
import { isNotFound } from "../kube/errors.ts";
import type { Clock } from "../reconciler/clock.ts";
import type { KubeObject } from "../reconciler/list-watch.ts";
import { noSuchObject, READ_DEADLINE_MS, StatusSwap, type SwappedKind } from "./status-swap.ts";

/** The fields of `status` a gateway may write (DESIGN §4 rule 6). */
export interface WorldWrite {
  readonly requests?: readonly WorldRequest[];
}

export interface WorldStore {
  readonly kind: SwappedKind<World>;
  readonly writer: StatusSwap<World, WorldWrite>;
}

export function worldStore(kube: KubeClient, clock: Clock): WorldStore {
  const client = kube.resource<KubeObject>(WORLDS);
  const named = { kind: "World", plural: "worlds" };
  const kind: SwappedKind<World> = {
    ...named,
    client,
    parse: (object) => worldSchema.parse(object),
    async get(ref, signal) {
      try {
        return worldSchema.parse(await client.get(ref, { signal, deadlineMs: READ_DEADLINE_MS }));
      } catch (error) {
        throw isNotFound(error) ? noSuchObject(named, ref, error) : error;
      }
    },
  };
  return { kind, writer: new StatusSwap(kind, clock) };
}
