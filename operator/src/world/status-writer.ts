/**
 * The only module that writes the World's finalizer and, but for `requests[]` (gateways write that, too), `World.status`. Every
 * write is a compare-and-swap: read, decide with the pure functions of lineage.ts, patch fields under the resourceVersion read,
 * and decide again when somebody was faster.
 */
import type { LostWork, World, WorldRequestResult, WorldRescue, WorldStatus, WorldVersion } from "@agentworlds/crds";
import type { ResourceClient } from "../kube/contract.ts";
import { isNotFound } from "../kube/errors.ts";
import { retryOnConflict } from "../kube/retry-on-conflict.ts";
import { observedAfter } from "./description.ts";
import type { CommitVerdict, HoldClaim, HoldVerdict, ReservationRequest, ReservationVerdict } from "./lineage.ts";
import { isOutdated, judgeCommit, judgeHold, judgeReservation } from "./lineage.ts";
import {
  type RescueChange,
  withAnswer,
  withChangedRescue,
  withLossNoted,
  withNewRescue,
  withoutRescue,
} from "./rescue/records.ts";

/** A World by name and UID: a World of the same name and another UID is a stranger. */
export interface WorldRef {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}

/** Whichever World has this name now. For writes that name what they end by an id of its own. */
export type WorldName = Omit<WorldRef, "uid">;

/** The World named is not there any more, or is another one of the same name. */
export class WorldGone extends Error {
  override readonly name = "WorldGone";
}

/** Present while the World is held, pending, or to be deleted with its content. */
export const WORLD_FINALIZER = "agentworlds.dev/world";

/** `null` removes a field, as in a JSON merge patch. */
export type WorldStatusPatch = { readonly [Field in keyof WorldStatus]?: WorldStatus[Field] | null };

export interface WorldStatusWriter {
  /** Fresh read; throws `WorldGone`. */
  read(ref: WorldRef, signal: AbortSignal): Promise<World>;
  /** Rule 1: takes the next number for an operation, or finds what the operation has already. */
  reserve(ref: WorldRef, request: ReservationRequest, signal: AbortSignal): Promise<ReservationVerdict>;
  /** One write: append the version, move head, clear the reservation (and record genesis with version 0). */
  commit(ref: WorldRef, commit: CommitRequest, signal: AbortSignal): Promise<void>;
  /** Gives a reservation up; the number stays burned. */
  abandon(ref: WorldRef, operation: string, signal: AbortSignal): Promise<void>;
  /** Gives a reservation another time, and so its manifest other bytes, under the number that it has. */
  renew(
    ref: WorldRef,
    renewal: { readonly operation: string; readonly at: string },
    signal: AbortSignal,
  ): Promise<void>;
  /** Rule 2: one writer. The World carries its finalizer when this resolves. */
  hold(ref: WorldRef, claim: HoldClaim, signal: AbortSignal): Promise<HoldVerdict>;
  /** Ends the hold of exactly this Sandbox. Another holder, or none, or no World is a success. */
  letGo(name: WorldName, sandboxUid: string, signal: AbortSignal): Promise<void>;
  /** Records unpublished work that is kept on a host; ends its session's hold in the same write. */
  recordRescue(ref: WorldRef, rescue: WorldRescue, signal: AbortSignal): Promise<void>;
  /** What a retry has come to. A rescue that is not recorded any more is a success. */
  changeRescue(ref: WorldRef, change: RescueChange, signal: AbortSignal): Promise<void>;
  /** Drops a rescue that is over; with `lost`, says what became of its work. Repeatable. */
  endRescue(
    ref: WorldRef,
    end: { readonly operation: string; readonly lost?: LostWork },
    signal: AbortSignal,
  ): Promise<void>;
  /** Somebody took note of work that is lost. */
  noteLoss(
    ref: WorldRef,
    note: { readonly operation: string; readonly user: string },
    signal: AbortSignal,
  ): Promise<void>;
  /** The answer to a request that has none yet. */
  answerRequest(
    ref: WorldRef,
    answer: { readonly id: string; readonly result: WorldRequestResult },
    signal: AbortSignal,
  ): Promise<void>;
  /**
   * Rebuilds or extends the lineage from what the registry says (docs/adr/0012). Decided again on what is stored when
   * somebody was faster; undefined writes nothing. Returns the World as it is then.
   */
  restore(
    ref: WorldRef,
    decide: (status: WorldStatus) => WorldStatusPatch | undefined,
    signal: AbortSignal,
  ): Promise<World>;
  /** The deferred status write of the World controller: fields under the resourceVersion it read. */
  summarise(world: World, patch: WorldStatusPatch, signal: AbortSignal): Promise<World>;
  /** Adds or removes the World's finalizer under the resourceVersion read. */
  setFinalizer(world: World, present: boolean, signal: AbortSignal): Promise<World>;
}

export interface CommitRequest {
  readonly operation: string;
  readonly version: WorldVersion;
  /** `registry/repository@digest`, becomes `head.image`. */
  readonly image: string;
  readonly genesis?: WorldStatus["genesis"];
}

interface Decision<R> {
  /** Absent: nothing to write. */
  readonly patch?: WorldStatusPatch;
  readonly result: R;
}

/** A published version that the World refuses to take. */
export class CommitRefused extends Error {
  override readonly name = "CommitRefused";
}

export function createWorldStatusWriter(worlds: ResourceClient<World>): WorldStatusWriter {
  async function read(ref: WorldRef, signal: AbortSignal): Promise<World> {
    try {
      const world = await worlds.get(ref, { signal });
      if (world.metadata.uid === ref.uid) return world;
    } catch (error) {
      if (!isNotFound(error)) throw error;
    }
    throw new WorldGone(`World ${ref.namespace}/${ref.name} (${ref.uid}) does not exist any more`);
  }

  async function summarise(world: World, patch: WorldStatusPatch, signal: AbortSignal): Promise<World> {
    const { name, namespace, resourceVersion } = world.metadata;
    try {
      return await worlds.patchStatus(
        { name, ...(namespace === undefined ? {} : { namespace }) },
        { metadata: { resourceVersion }, status: patch },
        { signal },
      );
    } catch (error) {
      if (!isNotFound(error)) throw error;
      throw new WorldGone(`World ${namespace}/${name} was deleted`, { cause: error });
    }
  }

  const update = <R>(
    ref: WorldRef,
    decide: (world: World) => Promise<Decision<R>> | Decision<R>,
    signal: AbortSignal,
  ): Promise<R> =>
    retryOnConflict(async () => {
      const world = await read(ref, signal);
      const decision = await decide(world);
      if (decision.patch) await summarise(world, decision.patch, signal);
      return decision.result;
    });

  /** Writes what `change` makes of the status, or nothing when that is undefined. */
  const patch = (
    ref: WorldRef,
    change: (status: WorldStatus) => WorldStatusPatch | undefined,
    signal: AbortSignal,
  ): Promise<void> =>
    update<void>(
      ref,
      (world) => {
        const changed = change(statusOf(world));
        return { result: undefined, ...(changed === undefined ? {} : { patch: changed }) };
      },
      signal,
    );

  /** A World that is gone, or replaced in between, is a success. */
  async function updateIfThere(
    { namespace, name }: WorldName,
    decide: (world: World) => WorldStatusPatch | undefined,
    signal: AbortSignal,
  ): Promise<void> {
    try {
      const { uid } = (await worlds.get({ namespace, name }, { signal })).metadata;
      await update<void>(
        { namespace, name, uid },
        (world) => {
          const changed = decide(world);
          return { result: undefined, ...(changed === undefined ? {} : { patch: changed }) };
        },
        signal,
      );
    } catch (error) {
      if (!isNotFound(error) && !(error instanceof WorldGone)) throw error;
    }
  }

  async function setFinalizer(world: World, present: boolean, signal: AbortSignal): Promise<World> {
    const finalizers = world.metadata.finalizers ?? [];
    if (finalizers.includes(WORLD_FINALIZER) === present) return world;
    const { name, namespace, resourceVersion } = world.metadata;
    try {
      return await worlds.patch(
        { name, ...(namespace === undefined ? {} : { namespace }) },
        {
          metadata: {
            resourceVersion,
            finalizers: present
              ? [...finalizers, WORLD_FINALIZER]
              : finalizers.filter((finalizer) => finalizer !== WORLD_FINALIZER),
          },
        },
        { signal },
      );
    } catch (error) {
      if (!isNotFound(error)) throw error;
      if (present) throw new WorldGone(`World ${namespace}/${name} was deleted`, { cause: error });
      // The cache can be behind: an object that is gone has no finalizer.
      return world;
    }
  }

  /**
   * The holder first, then the finalizer: a World that is deleted in between is gone before anything boots from it. The other
   * way round the World's own controller would see a finalizer without a holder and take it off again.
   */
  async function hold(ref: WorldRef, claim: HoldClaim, signal: AbortSignal): Promise<HoldVerdict> {
    const verdict = await update<HoldVerdict>(
      ref,
      (world) => {
        const judged = judgeHold(statusOf(world), claim);
        // Its deletion waits for the holder, who publishes first; nobody new comes in.
        if (judged.kind !== "held" && world.metadata.deletionTimestamp)
          throw new WorldGone(`World ${ref.namespace}/${ref.name} is being deleted`);
        return judged.kind === "hold" ? { result: judged, patch: { holder: judged.holder } } : { result: judged };
      },
      signal,
    );
    return verdict.kind === "refused" ? verdict : guardHeld(ref, claim, { verdict, signal });
  }

  async function guardHeld(
    ref: WorldRef,
    claim: HoldClaim,
    held: { verdict: HoldVerdict; signal: AbortSignal },
  ): Promise<HoldVerdict> {
    const judged = await retryOnConflict(async () => {
      const world = await read(ref, held.signal);
      const again = judgeHold(statusOf(world), claim);
      if (again.kind === "held") await setFinalizer(world, true, held.signal);
      return again;
    });
    if (judged.kind === "held") return held.verdict;
    return judged.kind === "refused" ? judged : hold(ref, claim, held.signal);
  }

  return {
    read,
    summarise,
    setFinalizer,
    hold,

    reserve: (ref, request, signal) =>
      update<ReservationVerdict>(
        ref,
        (world) => {
          const status = statusOf(world);
          const verdict = judgeReservation(status, request);
          return verdict.kind === "reserve"
            ? { result: verdict, patch: { pending: verdict.pending, nextVersion: verdict.nextVersion } }
            : { result: verdict, ...withoutOutdated(status, request.operation) };
        },
        signal,
      ),

    commit: async (ref, request, signal) => {
      const verdict = await update<CommitVerdict>(
        ref,
        (world) => {
          const status = statusOf(world);
          const verdict = judgeCommit(status, request);
          if (verdict.kind !== "commit") return { result: verdict, ...withoutOutdated(status, request.operation) };
          const genesis = request.genesis === undefined ? {} : { genesis: request.genesis };
          const observedDescription = observedAfter(world, request.version.description);
          const observed = observedDescription === undefined ? {} : { observedDescription };
          return { result: verdict, patch: { ...verdict.patch, ...genesis, ...observed } };
        },
        signal,
      );
      if (verdict.kind === "refused") throw new CommitRefused(verdict.message);
    },

    restore: (ref, decide, signal) =>
      retryOnConflict(async () => {
        const world = await read(ref, signal);
        const patch = decide(statusOf(world));
        return patch === undefined ? world : summarise(world, patch, signal);
      }),

    abandon: (ref, operation, signal) =>
      patch(ref, ({ pending }) => (pending?.operation === operation ? { pending: null } : undefined), signal),

    renew: (ref, { operation, at }, signal) =>
      patch(
        ref,
        ({ pending }) => (pending?.operation === operation ? { pending: { ...pending, since: at } } : undefined),
        signal,
      ),

    letGo: (name, sandboxUid, signal) =>
      updateIfThere(name, ({ status }) => (status?.holder?.uid === sandboxUid ? { holder: null } : undefined), signal),

    recordRescue: (ref, rescue, signal) => patch(ref, (status) => withNewRescue(status, rescue), signal),
    changeRescue: (ref, change, signal) => patch(ref, (status) => withChangedRescue(status, change), signal),
    endRescue: (ref, end, signal) => patch(ref, (status) => withoutRescue(status, end), signal),
    noteLoss: (ref, note, signal) => patch(ref, (status) => withLossNoted(status, note), signal),
    answerRequest: (ref, answer, signal) => patch(ref, (status) => withAnswer(status, answer), signal),
  };
}

/** A reservation that can never be committed would hold up every other one. */
const withoutOutdated = (status: WorldStatus, operation: string): { patch?: WorldStatusPatch } =>
  isOutdated(status, operation) ? { patch: { pending: null } } : {};

/** The status of a World whose API server has not yet defaulted it. */
export const statusOf = (world: World): WorldStatus => world.status ?? { observedGeneration: -1 };
