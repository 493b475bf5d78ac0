/** What the webhook answers to a review: who creates a World or Sandbox is written over whatever the request claims. */
import { CREATED_BY, creatorStamp, STAMPED_RESOURCES, GROUP as WORLDS_GROUP } from "@agentworlds/crds";
import * as z from "zod";

const API_VERSION = "admission.k8s.io/v1";

/** The request of `admission.k8s.io/v1`, as far as it is read. Whatever else is sent here is refused as a bad body. */
export const reviewSchema = z.object({
  apiVersion: z.literal(API_VERSION),
  kind: z.literal("AdmissionReview"),
  request: z.object({
    uid: z.string().min(1).max(256),
    // The webhook is registered for these alone, so anything else was not sent by its registration.
    operation: z.literal("CREATE"),
    resource: z.object({ group: z.literal(WORLDS_GROUP), resource: z.enum(STAMPED_RESOURCES) }),
    // The impersonated user, where somebody impersonates.
    userInfo: z.object({ username: z.string().min(1) }),
    object: z.looseObject({
      metadata: z.looseObject({ annotations: z.record(z.string(), z.unknown()).nullish() }),
    }),
  }),
});

export type AdmissionRequest = z.infer<typeof reviewSchema>["request"];

/** One operation of RFC 6902. */
export interface PatchOperation {
  readonly op: "add";
  readonly path: string;
  readonly value: unknown;
}

const ANNOTATIONS = "/metadata/annotations";

/** The patch that makes the object say who creates it; empty when it says so already. */
export function stampPatch(request: AdmissionRequest): readonly PatchOperation[] {
  const stamp = creatorStamp(request.userInfo.username, request.object);
  const { annotations } = request.object.metadata;
  // `add` to a member that is there replaces it; to a member of what is not there it fails.
  if (annotations === undefined || annotations === null) {
    return [{ op: "add", path: ANNOTATIONS, value: { [CREATED_BY]: stamp } }];
  }
  if (annotations[CREATED_BY] === stamp) return [];
  return [{ op: "add", path: `${ANNOTATIONS}/${CREATED_BY.replace("/", "~1")}`, value: stamp }];
}

/** The answer as it goes over the wire: nothing is ever refused here, that is the validating policies' business. */
export function reviewAnswer(request: AdmissionRequest): unknown {
  const patch = stampPatch(request);
  const patched = {
    patchType: "JSONPatch",
    patch: Buffer.from(JSON.stringify(patch)).toString("base64"),
  };
  return {
    apiVersion: API_VERSION,
    kind: "AdmissionReview",
    response: { uid: request.uid, allowed: true, ...(patch.length === 0 ? {} : patched) },
  };
}
