/**
 * Status can be written by whoever has the right to, and the id in it is what a host is asked to look into, stop and remove.
 * One that is not of this Sandbox's UID and boot is taken out before anything else happens: from there on status names no
 * container, and the hosts are asked for the own one.
 */
import { clip, LIMITS } from "@agentworlds/crds";
import { CONTINUE, type PhaseResult } from "../../reconciler/reconcile.ts";
import { computeName } from "../../runtime/contract.ts";
import { namesForeignCompute } from "../../runtime/open-boot.ts";
import { recordIntent } from "../record.ts";
import type { SandboxScope } from "../scope.ts";

export async function disownCompute(scope: SandboxScope): Promise<PhaseResult> {
  const { sandbox } = scope;
  const { compute } = sandbox.status ?? {};
  if (!compute || !namesForeignCompute(sandbox)) return CONTINUE;
  const { namespace, name, uid } = sandbox.metadata;
  const own = computeName({ sandboxUid: uid, boot: compute.boot });
  const message = `status named ${compute.id} on ${compute.runtime}/${compute.host}, which is not the container of Sandbox ${namespace}/${name} (${own}): it is not touched, and the hosts are asked for the own one`;
  await recordIntent(scope, { compute: null });
  scope.dependencies.log.error({ namespace, sandbox: name, compute }, message);
  scope.dependencies.announce(
    { kind: "Sandbox", object: scope.sandbox },
    { type: "Warning", reason: "ForeignCompute", action: "Disown", message: clip(message, LIMITS.message) },
  );
  return CONTINUE;
}
