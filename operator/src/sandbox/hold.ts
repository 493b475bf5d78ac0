/** The end of a hold that nothing stands behind. The hold of a session that ran ends in phases/release.ts. */
import { statusOf } from "../world/status-writer.ts";
import { readSame } from "./record.ts";
import type { SandboxScope } from "./scope.ts";

/**
 * A hold without compute keeps others waiting for nothing: a boot that was never recorded, because its slot was taken, the
 * session was ended first, or the operator was. The cache may lag behind a boot of ours, so a fresh read decides.
 */
export async function letGoUnused(scope: SandboxScope): Promise<void> {
  const { world, sandbox } = scope;
  if (!world || statusOf(world).holder?.uid !== sandbox.metadata.uid) return;
  if ((await readSame(scope)).status?.compute) return;
  const ref = { namespace: world.metadata.namespace ?? "", name: world.metadata.name, uid: world.metadata.uid };
  await scope.dependencies.worldWriter.letGo(ref, sandbox.metadata.uid, scope.context.signal);
}
