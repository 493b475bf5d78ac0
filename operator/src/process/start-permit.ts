/**
 * A gateway in a process of its own starts commands; the leader freezes. They share no memory, so a gateway asks the API
 * server, past every cache, before it has an engine start anything: the leader has written what it intends before it looks for
 * what is being started (DESIGN §4.4).
 */
import type { Sandbox } from "@agentworlds/crds";
import { isNotFound } from "../kube/errors.ts";
import { type ComputeOwner, computeName } from "../runtime/contract.ts";
import { RuntimeError } from "../runtime/errors.ts";
import { sessionState } from "../runtime/session-state.ts";

interface SandboxGetter {
  get(ref: { namespace: string; name: string }, options: { signal: AbortSignal }): Promise<Sandbox>;
}

/** Throws `ComputeNotRunning` where the session has ended, or is about to. */
export function startPermit(
  sandboxes: SandboxGetter,
): (owner: ComputeOwner, signal: AbortSignal) => Promise<"Now" | "NotYet"> {
  return async (owner, signal) => {
    try {
      const { namespace, sandbox: name } = owner;
      return permitOf(await sandboxes.get({ namespace, name }, { signal }), owner);
    } catch (error) {
      if (isNotFound(error)) throw over(owner);
      throw error;
    }
  };
}

/** What a Sandbox as it is stored now says of a start in this container. */
export function permitOf(sandbox: Sandbox, owner: ComputeOwner): "Now" | "NotYet" {
  const state = sessionState(sandbox);
  const isItsOwn = state.kind === "Running" && state.compute.id === computeName(owner);
  if (!isItsOwn || sandbox.metadata.uid !== owner.sandboxUid) throw over(owner);
  // A snapshot of the running session: it is thawed once it is captured.
  const stage = sandbox.status.operation?.stage;
  return stage === "Intended" || stage === "Frozen" ? "NotYet" : "Now";
}

const over = ({ sandbox, boot }: ComputeOwner): RuntimeError =>
  new RuntimeError("ComputeNotRunning", `boot ${boot} of Sandbox ${sandbox} is ending: nothing is started in it`);
