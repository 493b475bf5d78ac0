import * as z from "zod";
import type { KubeClient } from "../kube/contract.ts";
import type { Clock } from "../reconciler/clock.ts";
import { BoundedCache } from "./bounded-cache.ts";
import { GROUP, VERSION } from "./discovery.ts";
import { Failure } from "./failure.ts";
import { type Identity, identityKey } from "./identity.ts";

/** A revoked right works at most this much longer. */
const GRANT_TTL_MS = 10_000;
const REVIEW_DEADLINE_MS = 10_000;

/** What somebody wants to do, in the words of RBAC. */
export interface Attempt {
  readonly verb: string;
  readonly namespace: string;
  readonly resource: string;
  readonly subresource: string | undefined;
  readonly name: string;
}

/**
 * The rights a request needs beyond those kube-apiserver has checked. It authorises the HTTP method's verb on the
 * subresource before it forwards; a client that came directly was checked by nobody. And since a GET counts as `get`, a
 * role of read verbs would read file contents: what reaches into a session needs `create` as well.
 */
export function attemptsToReview(
  attempt: Attempt,
  options: { via: Identity["via"]; reachesIntoSession: boolean },
): Attempt[] {
  const attempts = options.via === "Direct" ? [attempt] : [];
  if (options.reachesIntoSession && !(options.via === "Direct" && attempt.verb === "create")) {
    attempts.push({ ...attempt, verb: "create" });
  }
  return attempts;
}

const reviewSchema = z.object({ status: z.object({ allowed: z.boolean(), denied: z.boolean().optional() }) });

/** Asks the cluster's authorisers, and remembers only what they allowed. */
export class Authorizer {
  readonly #kube: KubeClient;
  readonly #granted: BoundedCache<true>;

  constructor(options: { kube: KubeClient; clock: Clock }) {
    this.#kube = options.kube;
    this.#granted = new BoundedCache(options.clock, { ttlMs: GRANT_TTL_MS, maxEntries: 8_192 });
  }

  /** Throws `Failure` 403 unless every attempt is allowed. */
  async require(identity: Identity, attempts: readonly Attempt[], signal: AbortSignal): Promise<void> {
    for (const attempt of attempts) {
      if (!(await this.#allowed(identity, attempt, signal))) throw forbidden(identity, attempt);
    }
  }

  async #allowed(identity: Identity, attempt: Attempt, signal: AbortSignal): Promise<boolean> {
    const { verb, namespace, resource, subresource, name } = attempt;
    const key = JSON.stringify([identityKey(identity), verb, namespace, resource, subresource ?? "", name]);
    if (this.#granted.get(key)) return true;
    const answer = await this.#kube.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {
      signal,
      deadlineMs: REVIEW_DEADLINE_MS,
      body: {
        apiVersion: "authorization.k8s.io/v1",
        kind: "SubjectAccessReview",
        spec: {
          user: identity.user,
          groups: identity.groups,
          extra: identity.extra,
          ...(identity.uid === undefined ? {} : { uid: identity.uid }),
          resourceAttributes: {
            group: GROUP,
            version: VERSION,
            resource,
            verb,
            namespace,
            name,
            ...(subresource === undefined ? {} : { subresource }),
          },
        },
      },
    });
    const { allowed, denied } = reviewSchema.parse(answer).status;
    if (!allowed || denied === true) return false;
    this.#granted.set(key, true);
    return true;
  }
}

function forbidden(identity: Identity, attempt: Attempt): Failure {
  const resource = attempt.subresource === undefined ? attempt.resource : `${attempt.resource}/${attempt.subresource}`;
  return new Failure({
    status: 403,
    code: "Forbidden",
    message: `User "${identity.user}" cannot ${attempt.verb} resource "${resource}" in API group "${GROUP}" in the namespace "${attempt.namespace}"`,
    remediation: `grant verb ${attempt.verb} on ${attempt.resource}.${GROUP}${attempt.subresource === undefined ? "" : `/${attempt.subresource}`}`,
  });
}
