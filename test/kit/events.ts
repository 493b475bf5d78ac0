import { EVENTS } from "../../operator/src/kube/resource-types.ts";
import type { KubeObject } from "../../operator/src/reconciler/list-watch.ts";
import type { Site } from "./operator.ts";
import { eventually } from "./wait.ts";

/** An Event as a person reads it. */
export interface ToldEvent extends KubeObject {
  readonly type: "Normal" | "Warning";
  readonly reason: string;
  readonly note: string;
  readonly regarding: { readonly kind: string; readonly uid: string };
}

interface Regarded {
  readonly metadata: { readonly name: string; readonly namespace?: string; readonly uid: string };
}

/** Everything that was told about an object so far; cluster-scoped objects are told about in `default`. */
export async function eventsOf(site: Site, object: Regarded): Promise<ToldEvent[]> {
  const { namespace = "default", uid } = object.metadata;
  const page = await site.kube.resource<ToldEvent>(EVENTS).list({ namespace, signal: site.signal });
  return page.items.filter(({ regarding }) => regarding.uid === uid);
}

/** Waits for an Event with this reason and returns it; the failure names what was told instead. */
export async function eventWith(site: Site, object: Regarded, reason: string | undefined): Promise<ToldEvent> {
  let told: readonly ToldEvent[] = [];
  try {
    return await eventually(
      async () => {
        told = await eventsOf(site, object);
        return told.find((event) => event.reason === reason);
      },
      { timeoutMs: 10_000, what: `an Event ${reason}` },
    );
  } catch (error) {
    const reasons = told.map((event) => `${event.reason}: ${event.note}`).join("\n");
    throw new Error(`no Event ${reason} about ${object.metadata.name}; told was:\n${reasons}`, { cause: error });
  }
}
