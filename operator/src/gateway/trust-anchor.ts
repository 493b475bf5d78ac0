import type { Logger } from "pino";
import type { KubeClient } from "../kube/contract.ts";
import { CONFIG_MAPS, type ConfigMap } from "../kube/resource-types.ts";
import type { Clock } from "../reconciler/clock.ts";
import { followObject } from "./follow-object.ts";
import { parseTrust, type RequestHeaderTrust } from "./request-header.ts";

/** Where kube-apiserver publishes its request-header settings. */
const REF = { namespace: "kube-system", name: "extension-apiserver-authentication" };

/** Whom the gateway believes `X-Remote-*` headers from, as the cluster says at this moment. */
export class TrustAnchor {
  readonly #options: { kube: KubeClient; clock: Clock; logger: Logger };
  #current: RequestHeaderTrust | undefined;

  constructor(options: { kube: KubeClient; clock: Clock; logger: Logger }) {
    this.#options = options;
  }

  /** `undefined` before the first read and where aggregation is off: nobody may speak for others then. */
  get current(): RequestHeaderTrust | undefined {
    return this.#current;
  }

  /** Follows the ConfigMap; `onChange` runs after each state, the first one included. Ends with the signal. */
  async follow(onChange: () => void, signal: AbortSignal): Promise<void> {
    const { kube, clock, logger } = this.#options;
    const onError = (error: unknown) =>
      logger.warn({ err: error }, "watching the request-header CA failed; trying again");
    const client = kube.resource<ConfigMap>(CONFIG_MAPS);
    for await (const configMap of followObject({ client, ref: REF, clock, signal, onError })) {
      try {
        this.#current = parseTrust(configMap?.data);
      } catch (error) {
        // Settings that cannot be read trust nobody.
        this.#current = undefined;
        logger.error({ err: error }, "the request-header settings of the cluster cannot be read");
      }
      onChange();
    }
  }
}
