/**
 * The prose of a World's versions. Each carries the text in force: what was stated last, by the spec or by who asked for the
 * version. A text of the spec is new until a version has taken it over; which one that was is remembered, because versions go
 * from the list and a text may come back. Pure decisions.
 */
import type { World } from "@agentworlds/crds";

/** A new text in the spec, else what the newest version carries. */
export function descriptionInForce(world: World): string {
  const { description } = world.spec;
  return description !== undefined && isNew(world, description) ? description : (newest(world) ?? "");
}

/** `status.observedDescription` after a version with this description was made; undefined: absent. */
export function observedAfter(world: World, description: string): string | undefined {
  const before = world.status?.observedDescription;
  const stated = world.spec.description;
  // Taken out of the spec: whichever text comes next is new.
  if (stated === undefined) return before === undefined ? undefined : "";
  return stated === description || !isNew(world, stated) ? stated : before;
}

function isNew(world: World, stated: string): boolean {
  const { observedDescription, versions = [] } = world.status ?? {};
  if (observedDescription !== undefined) return stated !== observedDescription;
  // Nothing is remembered: of an older operator, or rebuilt from the registry.
  return !versions.some(({ description }) => description === stated);
}

const newest = (world: World): string | undefined => world.status?.versions?.at(-1)?.description;
