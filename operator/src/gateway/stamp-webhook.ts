/** The webhook that stamps creators where the API server cannot do it by itself (docs/adr/0008-creator-stamp.md). */
import { STAMP_NAME, STAMPED_RESOURCES, GROUP as WORLDS_GROUP, VERSION as WORLDS_VERSION } from "@agentworlds/crds";
import type { KubeClient } from "../kube/contract.ts";
import { isNotFound } from "../kube/errors.ts";
import { MUTATING_POLICY_BINDINGS, MUTATING_WEBHOOKS } from "../kube/resource-types.ts";
import type { KubeObject } from "../reconciler/list-watch.ts";
import { WEBHOOK_PATH, WEBHOOK_TIMEOUT_SECONDS } from "./admission-webhook.ts";
import { GATEWAY_SERVICE } from "./apiservice.ts";
import { encodePem, OWNED, type Signpost } from "./signpost.ts";

interface WebhookConfiguration extends KubeObject {
  readonly webhooks?: readonly { readonly clientConfig?: { readonly service?: { readonly port?: number } } }[];
}

/** The MutatingWebhookConfiguration; it leads to a port of the gateways' Service. */
export function stampWebhook(namespace: string): Signpost {
  return {
    what: "the webhook that stamps creators",
    type: MUTATING_WEBHOOKS,
    ref: { name: STAMP_NAME },
    portOf: (present: WebhookConfiguration) => present.webhooks?.[0]?.clientConfig?.service?.port,
    wanted: ({ port, caBundle, namespaceUid }) => ({
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: "MutatingWebhookConfiguration",
      metadata: {
        name: STAMP_NAME,
        labels: OWNED,
        // Whoever deletes the installation's namespace removes what would refuse creations for ever.
        ...(namespaceUid === undefined ? {} : { ownerReferences: [ownedBy({ name: namespace, uid: namespaceUid })] }),
      },
      webhooks: [
        {
          name: STAMP_NAME,
          admissionReviewVersions: ["v1"],
          clientConfig: {
            caBundle: encodePem(caBundle),
            service: { namespace, name: GATEWAY_SERVICE, port, path: WEBHOOK_PATH },
          },
          rules: [
            {
              apiGroups: [WORLDS_GROUP],
              apiVersions: [WORLDS_VERSION],
              operations: ["CREATE"],
              resources: STAMPED_RESOURCES,
              scope: "Namespaced",
            },
          ],
          matchPolicy: "Equivalent",
          // While it is registered nobody may create without it: an object that slipped through would be nobody's for ever.
          failurePolicy: "Fail",
          sideEffects: "None",
          timeoutSeconds: WEBHOOK_TIMEOUT_SECONDS,
          // Again after a webhook that rewrote the annotations.
          reinvocationPolicy: "IfNeeded",
        },
      ],
    }),
  };
}

const ownedBy = (namespace: { name: string; uid: string }) => ({ apiVersion: "v1", kind: "Namespace", ...namespace });

/**
 * Whether the API server stamps by itself: it serves MutatingAdmissionPolicy v1 and the policy is bound. A server that does
 * not know the kind answers 404 like one in which nobody installed the policy, and both need the webhook.
 */
export async function stampsByItself(kube: KubeClient, signal: AbortSignal): Promise<boolean> {
  try {
    await kube.resource(MUTATING_POLICY_BINDINGS).get({ name: STAMP_NAME }, { signal, deadlineMs: 10_000 });
    return true;
  } catch (error) {
    if (isNotFound(error)) return false;
    throw error;
  }
}
