/** Unpublished work that is kept on a host, written where it survives its Sandbox and namespace: `Runtime.status.rescues[]`. */
import type { Runtime, RuntimeRescue } from "@agentworlds/crds";
import type { ResourceClient } from "../kube/contract.ts";
import { isNotFound } from "../kube/errors.ts";
import { retryOnConflict } from "../kube/retry-on-conflict.ts";
import { type Log, silentLog } from "../reconciler/log.ts";
import { type ComputeOwner, isComputeOfSandbox } from "./contract.ts";

/** What became of a rescue. `Full`: it is not written down, see `RuntimeRescues.record`. */
export type RescueOutcome = "Recorded" | "KnownAlready" | "Full";

export interface RuntimeRescues {
  /**
   * Adds the rescue unless its operation or its container is recorded already. Throws when the Runtime does not exist.
   *
   * A full list drops nobody's work to make room, and is no reason to hold a deletion up for ever: the container stays on
   * its host, labelled, and the sweep writes it down once there is room. Until then the Runtime's condition `RescuesFull`
   * and the log say so.
   */
  record(runtime: string, rescue: RuntimeRescue, signal: AbortSignal): Promise<RescueOutcome>;
  /**
   * Drops the record of a session's operation whose container and capture are gone. No record, that of another session and no
   * Runtime are a success.
   */
  forget(runtime: string, kept: Pick<RuntimeRescue, "operation" | "sandbox">, signal: AbortSignal): Promise<void>;
  /** The rescues as they are stored now. */
  kept(runtime: string, signal: AbortSignal): Promise<readonly RuntimeRescue[]>;
}

/** The schema allows no more. */
const MOST_RESCUES = 64;

/** Reasons of containers that were left behind without work that anybody waits for. */
export const WITHOUT_WORK = { published: "Published", nothing: "NothingToSave" } as const;

/** Whether it holds work that is in no version, as far as its record knows. */
export const holdsWork = ({ reason }: Pick<RuntimeRescue, "reason">): boolean =>
  reason !== WITHOUT_WORK.published && reason !== WITHOUT_WORK.nothing;

/**
 * Whether what an operation captured, pushed or reserved is this rescue's to deal with: its own, or that of the snapshot that was
 * under way.
 */
export const accountsFor = (
  { operation, snapshot }: Pick<RuntimeRescue, "operation" | "snapshot">,
  of: string | undefined,
): boolean => of !== undefined && (operation === of || snapshot?.operation === of);

/**
 * Whether a record speaks of its own session's container. Records can be written by whoever may write status, and what they
 * name is stopped, published, handed out and removed. `owner` is what the container says of itself; undefined when there is
 * none on the host.
 */
export const isOfItsSession = (
  { computeId, sandbox }: Pick<RuntimeRescue, "computeId" | "sandbox">,
  { namespace, owner }: { readonly namespace: string; readonly owner: ComputeOwner | undefined },
): boolean =>
  isComputeOfSandbox(computeId, sandbox.uid) &&
  (owner === undefined || (owner.namespace === namespace && owner.sandboxUid === sandbox.uid));

/** Whether no further rescue can be written down. */
export const isFull = (rescues: readonly RuntimeRescue[]): boolean => rescues.length >= MOST_RESCUES;

/** A sweep with an older view of the Runtime finds the container of a rescue that was written down a moment ago. */
const isSameWork = (known: RuntimeRescue, rescue: RuntimeRescue): boolean =>
  known.operation === rescue.operation || (known.host === rescue.host && known.computeId === rescue.computeId);

export function createRuntimeRescues(runtimes: ResourceClient<Runtime>, log: Log = silentLog): RuntimeRescues {
  return {
    record: (name, rescue, signal) =>
      retryOnConflict(async () => {
        const runtime = await runtimes.get({ name }, { signal });
        const rescues = runtime.status?.rescues ?? [];
        if (rescues.some((known) => isSameWork(known, rescue))) return "KnownAlready";
        if (isFull(rescues)) {
          log.error({ runtime: name, rescue }, "rescued work is kept on its host without a record: the list is full");
          return "Full";
        }
        await runtimes.patchStatus(
          { name },
          {
            metadata: { resourceVersion: runtime.metadata.resourceVersion },
            status: { rescues: [...rescues, rescue] },
          },
          { signal },
        );
        return "Recorded";
      }),

    async forget(name, { operation, sandbox }, signal) {
      try {
        await retryOnConflict(async () => {
          const runtime = await runtimes.get({ name }, { signal });
          const rescues = runtime.status?.rescues ?? [];
          const left = rescues.filter((one) => one.operation !== operation || one.sandbox.uid !== sandbox.uid);
          if (left.length === rescues.length) return;
          const { resourceVersion } = runtime.metadata;
          await runtimes.patchStatus(
            { name },
            { metadata: { resourceVersion }, status: { rescues: left } },
            { signal },
          );
        });
      } catch (error) {
        if (!isNotFound(error)) throw error;
      }
    },

    async kept(name, signal) {
      return (await runtimes.get({ name }, { signal })).status?.rescues ?? [];
    },
  };
}
