/** Findings of the controllers as Kubernetes Events: reasons equal condition reasons, and each says who caused it. */
import { API_VERSION } from "@agentworlds/crds";
import { CAUSED_BY, type EventRecorder } from "../kube/events.ts";
import { creatorOf } from "../world/creator.ts";
import type { Announce } from "../world/scope.ts";

export function announcer(recorder: EventRecorder): Announce {
  return ({ kind, object }, { type, reason, action, message, causedBy }) => {
    const { name, namespace, uid } = object.metadata;
    recorder.record({
      regarding: { apiVersion: API_VERSION, kind, name, uid, ...(namespace === undefined ? {} : { namespace }) },
      type,
      reason,
      action,
      note: message,
      annotations: { [CAUSED_BY]: JSON.stringify(causedBy ?? creatorOf(object)) },
    });
  };
}
