/** Whose work a rescue is: a record may stand on the World, on a Runtime, or on both. */
import { accountsFor } from "../../runtime/rescues.ts";
import type { WorldScope } from "../scope.ts";
import { statusOf } from "../status-writer.ts";

/** Whether the World as the pass has it, or any Runtime, names a rescue of this operation. */
export function isRescued({ world, dependencies }: WorldScope, operation: string): boolean {
  const onWorld = statusOf(world).rescues ?? [];
  const onRuntimes = dependencies.runtimes.list().flatMap(({ status }) => status?.rescues ?? []);
  return [...onWorld, ...onRuntimes].some((rescue) => accountsFor(rescue, operation));
}
