import {
  type Condition,
  type Sandbox,
  type SandboxRequest,
  type SandboxRequestResult,
  type SandboxStatus,
  WORLDS,
  type WorldStatus,
} from "@agentworlds/crds";
import { eventually } from "../../kit/index.ts";
import { iso, LAB, type Lab, running } from "../gateway/fixture.ts";

type Written = { readonly [K in keyof SandboxStatus]?: SandboxStatus[K] | null };

/** A condition as the controller writes it. */
export const condition = (type: string, status: Condition["status"], reason: string, message: string): Condition => ({
  type,
  status,
  reason,
  message,
  lastTransitionTime: iso(Date.now()),
});

const isRunning = condition("Ready", "True", "Running", "boot 1 on local/one");

/** The leading controller, played by the test: it writes what the real one would, when the test says so. */
export class PlayedController {
  readonly #lab: Lab;

  constructor(lab: Lab) {
    this.#lab = lab;
  }

  /** Writes a Sandbox's status, as soon as the Sandbox exists. */
  async says(name: string, status: Written): Promise<Sandbox> {
    await eventually(() => this.#lab.read(name), { what: `Sandbox ${name}` });
    await this.#lab.sandboxes.patchStatus({ namespace: LAB, name }, { status }, { signal: this.#lab.signal });
    return this.#lab.read(name);
  }

  async ready(name: string): Promise<Sandbox> {
    return this.says(name, { ...(await this.running(name)), conditions: [isRunning] });
  }

  /** The status of a session that runs, for the Sandbox of this name as soon as it exists. */
  async running(name: string): Promise<SandboxStatus> {
    const { metadata } = await eventually(() => this.#lab.read(name), { what: `Sandbox ${name}` });
    return running(metadata.uid);
  }

  hibernated(name: string): Promise<Sandbox> {
    const conditions = [condition("Hibernated", "True", "DeadlinePassed", "version 3")];
    return this.says(name, { boot: 1, compute: null, expiresAt: null, operation: null, conditions });
  }

  stalled(name: string, reason: string, message: string): Promise<Sandbox> {
    const conditions = [condition("Ready", "False", reason, message), condition("Stalled", "True", reason, message)];
    return this.says(name, { phase: "Failed", conditions });
  }

  /** Waits for a request of the verb and answers it, with what else becomes of the Sandbox. */
  async answers(
    name: string,
    verb: SandboxRequest["verb"],
    result: Omit<SandboxRequestResult, "at">,
    status: Written = {},
  ): Promise<SandboxRequest> {
    const asked = await this.asked(name, verb);
    await eventually(
      async () => {
        const { metadata, status: now } = await this.#lab.read(name);
        const requests = now.requests?.map((each) =>
          each.id === asked.id ? { ...each, result: { ...result, at: iso(Date.now()) } } : each,
        );
        const patch = { metadata: { resourceVersion: metadata.resourceVersion }, status: { ...status, requests } };
        await this.#lab.sandboxes.patchStatus({ namespace: LAB, name }, patch, { signal: this.#lab.signal });
        return true;
      },
      { what: `the answer to ${verb}` },
    );
    return asked;
  }

  /** The open request of the verb, as soon as a gateway recorded it. */
  asked(name: string, verb: SandboxRequest["verb"]): Promise<SandboxRequest> {
    return eventually(
      async () => (await this.#lab.read(name)).status.requests?.find((each) => each.verb === verb && !each.result),
      { what: `${verb} of ${name}` },
    );
  }

  async closed(
    name: string,
    closed: Pick<NonNullable<SandboxStatus["closed"]>, "version" | "digest">,
  ): Promise<SandboxRequest> {
    const conditions = [condition("Closed", "True", "CloseRequested", "closed")];
    const end = { conditions, compute: null, expiresAt: null, closed: { ...closed, at: iso(Date.now()) } };
    return this.answers(name, "Close", { outcome: "Succeeded", ...closed }, end);
  }

  async worldSays(name: string, status: { readonly [K in keyof WorldStatus]?: WorldStatus[K] }): Promise<void> {
    await this.#lab.kube
      .resource(WORLDS)
      .patchStatus({ namespace: LAB, name }, { status }, { signal: this.#lab.signal });
  }
}

/** Digest of some version. */
export const digest = (fill: string): `sha256:${string}` => `sha256:${fill.repeat(64)}`;
