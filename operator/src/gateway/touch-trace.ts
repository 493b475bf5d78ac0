import { API_VERSION, causedByUser, type Sandbox } from "@agentworlds/crds";
import { CAUSED_BY, type EventRecorder } from "../kube/events.ts";
import type { Clock } from "../reconciler/clock.ts";
import { BoundedCache } from "./bounded-cache.ts";
import type { Identity } from "./identity.ts";

/** At most one trace of one user on one session in this time. */
const TRACE_MS = 60_000;
const MOST_REMEMBERED = 4_096;

/**
 * Leaves on record who extended a session (DESIGN §4.10): status tells only until when it lives now. A wake needs no trace
 * here: it is a request with its user in `status.requests`.
 */
export class TouchTrace {
  readonly #recorder: Pick<EventRecorder, "record">;
  readonly #told: BoundedCache<true>;

  constructor(options: { recorder: Pick<EventRecorder, "record">; clock: Clock }) {
    this.#recorder = options.recorder;
    this.#told = new BoundedCache(options.clock, { ttlMs: TRACE_MS, maxEntries: MOST_REMEMBERED });
  }

  /** Tells that `identity` touched a running session. Never throws, never waits. */
  touched(sandbox: Sandbox, identity: Identity): void {
    const { name, namespace, uid } = sandbox.metadata;
    const key = JSON.stringify([uid, identity.user]);
    if (this.#told.get(key) !== undefined) return;
    this.#told.set(key, true);
    const causedBy = causedByUser(identity.user);
    this.#recorder.record({
      regarding: {
        apiVersion: API_VERSION,
        kind: "Sandbox",
        name,
        uid,
        ...(namespace === undefined ? {} : { namespace }),
      },
      type: "Normal",
      reason: "Touched",
      action: "Touch",
      // Without the new deadline: the same sentence again is a count on the Event that is there, not another Event.
      note: `${causedBy.user} touched the session`,
      annotations: { [CAUSED_BY]: JSON.stringify(causedBy) },
    });
  }
}
