import type { Platform } from "@agentworlds/crds";
import type { Clock } from "../../reconciler/clock.ts";
import type { RegistryLogin } from "../../registry/contract.ts";
import { type ComputeSpec, computeName } from "../contract.ts";
import { RuntimeError } from "../errors.ts";
import type { HelperBinary } from "../helper.ts";
import { hostFacts, hostInfo } from "./capabilities.ts";
import { createOrFind } from "./claim-name.ts";
import { containerConfig } from "./container-config.ts";
import { type Containers, observe } from "./containers.ts";
import { withoutCredentials } from "./credentials.ts";
import { EngineRefused, refusedAs } from "./engine-errors.ts";
import { ensureHelperVolume } from "./helper-volume.ts";
import type { Images, InspectedImage } from "./images.ts";
import { isSameBoot } from "./labels.ts";
import { ensureNetwork } from "./network.ts";
import { Remembered } from "./remembered.ts";
import type { EngineTransport } from "./transport.ts";

export interface ProvisionerParts {
  readonly transport: EngineTransport;
  readonly containers: Containers;
  readonly images: Images;
  /** The helper for the host's platform. */
  readonly helper: (platform: Platform, signal: AbortSignal) => Promise<HelperBinary>;
  readonly clock: Clock;
  /** The engine's id. */
  readonly engine: (signal: AbortSignal) => Promise<string>;
}

/** A container as `provision` leaves it. */
export interface Provisioned {
  /** The engine's Id. */
  readonly containerId: string;
  /** Whether its helper can be talked to: not when an earlier try's container has ended or is frozen. */
  readonly isRunning: boolean;
  /** USER of the image; empty is root. */
  readonly user: string;
}

/** Making network and helper volume on a host that has neither, the first time including the helper's compilation. */
const PREPARE_MS = 6 * 60_000;

/** Brings the container of a boot into being, exactly once, and what it needs on its host. */
export class Provisioner {
  readonly #parts: ProvisionerParts;
  readonly #helperVolume: Remembered<string>;
  readonly #isolatedNetwork: Remembered<string>;

  constructor(parts: ProvisionerParts) {
    const { transport } = parts;
    this.#parts = parts;
    this.#helperVolume = new Remembered(async (signal) => {
      const info = await transport.json(hostInfo, { method: "GET", path: "/info" }, signal);
      const helper = await parts.helper(hostFacts(info).platform, signal);
      return await ensureHelperVolume(parts, helper, signal);
    }, PREPARE_MS);
    this.#isolatedNetwork = new Remembered((signal) => ensureNetwork(transport, signal), PREPARE_MS);
  }

  async provision(spec: ComputeSpec, signal: AbortSignal): Promise<Provisioned> {
    const { containers } = this.#parts;
    const image = await this.present(spec.image, spec.pullCredentials, signal);
    const helperVolume = await refusedAs("HostRefused", this.#helperVolume.get(signal));
    const network =
      spec.isolation.network === "None" ? "none" : await refusedAs("HostRefused", this.#isolatedNetwork.get(signal));
    const engine = await refusedAs("HostRefused", this.#parts.engine(signal));
    const config = containerConfig(spec, { helperVolume, network, engine });
    const containerId = await this.#createOrAdopt(spec, config, signal);
    const observed = async () => observe(await refusedAs("HostRefused", containers.inspect(containerId, signal))).state;
    if ((await observed()) === "Created") await this.#start(containerId, signal);
    return { containerId, isRunning: (await observed()) === "Running", user: image.Config?.User ?? "" };
  }

  /** Pulls unless the host has the image. */
  async present(image: string, login: RegistryLogin | undefined, signal: AbortSignal): Promise<InspectedImage> {
    const { images } = this.#parts;
    try {
      const present = await images.inspect(image, signal);
      if (present !== undefined) return present;
      await images.pull(image, login, signal);
      const pulled = await images.inspect(image, signal);
      if (pulled !== undefined) return pulled;
    } catch (error) {
      if (!(error instanceof EngineRefused)) throw error;
      const words = withoutCredentials(error.message, login);
      throw new RuntimeError("ImageUnavailable", `${image} cannot be pulled: ${words}`);
    }
    throw new RuntimeError("ImageUnavailable", `${image} was pulled and is not there: is it for another platform?`);
  }

  async #createOrAdopt(spec: ComputeSpec, config: unknown, signal: AbortSignal): Promise<string> {
    const name = computeName(spec.owner);
    try {
      const claimed = await createOrFind(this.#parts, { name, config }, signal);
      if (claimed.kind === "Made") return claimed.id;
      if (isSameBoot(claimed.container.Config.Labels, spec.owner)) return claimed.container.Id;
    } catch (error) {
      throw this.#refused("the container cannot be created", error);
    }
    throw new RuntimeError("ComputeConflict", `the host has a container ${name} that is not this boot's`);
  }

  async #start(id: string, signal: AbortSignal): Promise<void> {
    try {
      await this.#parts.containers.start(id, signal);
    } catch (error) {
      throw this.#refused("the container does not start", error);
    }
  }

  /** Somebody may have removed the volume or the network by hand, so the next try looks again. */
  #refused(what: string, error: unknown): unknown {
    this.#helperVolume.forget();
    this.#isolatedNetwork.forget();
    if (!(error instanceof EngineRefused)) return error;
    return new RuntimeError("HostRefused", `${what}: ${error.message}`, { cause: error });
  }
}
