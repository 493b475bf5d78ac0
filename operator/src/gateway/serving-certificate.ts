import type { Logger } from "pino";
import type { KubeClient, ResourceClient } from "../kube/contract.ts";
import { isAlreadyExists, isConflict } from "../kube/errors.ts";
import { SECRETS, type Secret } from "../kube/resource-types.ts";
import type { Clock } from "../reconciler/clock.ts";
import { followObject, pause } from "./follow-object.ts";
import { renewed, type ServingMaterial } from "./serving-material.ts";

/** Name of the Secret, in the installation's namespace. */
export const SERVING_SECRET = "agent-worlds-gateway-tls";
const CALL_DEADLINE_MS = 10_000;
/** How often the age is looked at. A certificate lives for 90 days. */
const RENEW_CHECK_MS = 3_600_000;

/** The serving certificate all replicas share, kept in a Secret and renewed by whichever notices first. */
export class ServingCertificate {
  readonly #secrets: ResourceClient<Secret>;
  readonly #options: { namespace: string; names: readonly string[]; clock: Clock; logger: Logger };

  constructor(options: {
    kube: KubeClient;
    namespace: string;
    /** DNS names and IP addresses the gateway is called by. */
    names: readonly string[];
    clock: Clock;
    logger: Logger;
  }) {
    this.#options = options;
    this.#secrets = options.kube.resource<Secret>(SECRETS);
  }

  /** Reads the Secret, makes or renews it when needed, and returns what to serve with. Throws kube errors. */
  async ensure(signal: AbortSignal): Promise<ServingMaterial> {
    const { namespace, names, clock } = this.#options;
    const calls = { signal, deadlineMs: CALL_DEADLINE_MS };
    for (;;) {
      const page = await this.#secrets.list({ namespace, fieldSelector: `metadata.name=${SERVING_SECRET}`, ...calls });
      const secret = page.items[0];
      const present = secret === undefined ? undefined : materialOf(secret);
      const wanted = renewed(present, { names, now: clock.now() });
      if (wanted === present) return wanted;
      try {
        if (secret === undefined) await this.#secrets.create(newSecret(namespace, wanted), { namespace, ...calls });
        else {
          const { resourceVersion } = secret.metadata;
          const patch = { metadata: { resourceVersion }, data: dataOf(wanted) };
          await this.#secrets.patch({ namespace, name: SERVING_SECRET }, patch, calls);
        }
        return wanted;
      } catch (error) {
        // Another replica was first: take what it made.
        if (!isAlreadyExists(error) && !isConflict(error)) throw error;
      }
    }
  }

  /** Calls `use` whenever the material changes, renews it when due; ends with the signal. */
  async keepFresh(use: (material: ServingMaterial) => Promise<void>, signal: AbortSignal): Promise<void> {
    await Promise.all([this.#follow(use, signal), this.#renewWhenDue(signal)]);
  }

  async #follow(use: (material: ServingMaterial) => Promise<void>, signal: AbortSignal): Promise<void> {
    const { namespace, clock, logger } = this.#options;
    const states = followObject({
      client: this.#secrets,
      ref: { namespace, name: SERVING_SECRET },
      clock,
      signal,
      onError: (error) => logger.warn({ err: error }, "watching the serving certificate failed; trying again"),
    });
    for await (const secret of states) {
      // A Secret somebody deleted or damaged is made anew; the old certificate serves until then.
      const material = secret === undefined ? undefined : materialOf(secret);
      if (material === undefined) await this.#try(() => this.ensure(signal), signal);
      else await this.#try(() => use(material), signal);
    }
  }

  async #renewWhenDue(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await pause(this.#options.clock, RENEW_CHECK_MS, signal);
      if (!signal.aborted) await this.#try(() => this.ensure(signal), signal);
    }
  }

  /** Repeats with a growing pause until it succeeds or the signal aborts. */
  async #try(step: () => Promise<unknown>, signal: AbortSignal): Promise<void> {
    for (let pauseMs = 500; !signal.aborted; pauseMs = Math.min(pauseMs * 2, 30_000)) {
      try {
        await step();
        return;
      } catch (error) {
        if (signal.aborted) return;
        this.#options.logger.warn({ err: error }, "renewing the serving certificate failed; trying again");
      }
      await pause(this.#options.clock, pauseMs, signal);
    }
  }
}

const newSecret = (namespace: string, material: ServingMaterial) => ({
  apiVersion: "v1",
  kind: "Secret",
  metadata: { name: SERVING_SECRET, namespace, labels: { "app.kubernetes.io/managed-by": "agent-worlds" } },
  type: "kubernetes.io/tls",
  data: dataOf(material),
});

const encode = (text: string): string => Buffer.from(text).toString("base64");

const dataOf = (material: ServingMaterial): Record<string, string> => ({
  "tls.crt": encode(material.certificate),
  "tls.key": encode(material.key),
  "ca.crt": encode(material.caBundle),
  "ca.key": encode(material.caKey),
});

/** `undefined` when a key is missing; whether the contents are good is judged by `renewed`. */
function materialOf(secret: Secret): ServingMaterial | undefined {
  const decode = (key: string): string | undefined => {
    const value = secret.data?.[key];
    return value === undefined ? undefined : Buffer.from(value, "base64").toString("utf8");
  };
  const [certificate, key, caBundle, caKey] = ["tls.crt", "tls.key", "ca.crt", "ca.key"].map(decode);
  if (certificate === undefined || key === undefined || caBundle === undefined || caKey === undefined) return undefined;
  return { certificate, key, caBundle, caKey };
}
