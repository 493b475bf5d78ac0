/** Objects of the API server that lead to the gateways: how they ought to be, and that they go when nobody serves. */
import type { CallOptions, KubeClient, ObjectRef, ResourceType } from "../kube/contract.ts";
import { isConflict, isNotFound } from "../kube/errors.ts";
import type { KubeObject } from "../reconciler/list-watch.ts";

/** Labels of what the gateways made. A chart's Service carries Helm's own and stays. */
export const OWNED = { "app.kubernetes.io/managed-by": "agent-worlds" };
const CALL_DEADLINE_MS = 10_000;

/** One object that leads to the gateways. */
export interface Signpost {
  /** For the log: "the aggregated API". */
  readonly what: string;
  readonly type: ResourceType;
  readonly ref: ObjectRef;
  /** The port that the object as it stands leads to; undefined when it leads to none of its own. */
  portOf(present: KubeObject): number | undefined;
  /** The whole object, every field that the API server would fill in spelled out. */
  wanted(way: Way): object;
}

/** Where a signpost leads. */
export interface Way {
  readonly port: number;
  /** What the gateways' certificates are to be verified by, PEM. */
  readonly caBundle: string;
  /** UID of the installation's namespace, for what it is to own. */
  readonly namespaceUid?: string | undefined;
}

/** What became of a signpost. */
export type Withdrawal = "Withdrawn" | "Absent" | "Kept";

/** The signposts of one installation, read and written. Throws kube errors. */
export class Signposts {
  readonly #kube: KubeClient;

  constructor(kube: KubeClient) {
    this.#kube = kube;
  }

  /** Undefined while it does not stand. */
  async read(signpost: Signpost, signal: AbortSignal): Promise<KubeObject | undefined> {
    try {
      return await this.#kube.resource<KubeObject>(signpost.type).get(signpost.ref, within(signal));
    } catch (error) {
      if (isNotFound(error)) return undefined;
      throw error;
    }
  }

  /** Makes it lead this way; false when it does already, and then nothing is written. */
  async lead(
    signpost: Signpost,
    { present, way }: { present: KubeObject | undefined; way: Way },
    signal: AbortSignal,
  ): Promise<boolean> {
    const wanted = signpost.wanted(way);
    if (present !== undefined && covers(present, wanted)) return false;
    await this.#kube.resource<KubeObject>(signpost.type).apply(signpost.ref, wanted, within(signal));
    return true;
  }

  /** Deletes it; one that is not ours is kept. */
  async withdraw(signpost: Signpost, signal: AbortSignal): Promise<Withdrawal> {
    const present = await this.read(signpost, signal);
    if (present === undefined) return "Absent";
    if (!covers(present.metadata.labels, OWNED)) return "Kept";
    try {
      const options = { uid: present.metadata.uid, ...within(signal) };
      await this.#kube.resource<KubeObject>(signpost.type).delete(signpost.ref, options);
      return "Withdrawn";
    } catch (error) {
      // Replaced meanwhile: a gateway has registered anew.
      if (isConflict(error)) return "Kept";
      if (isNotFound(error)) return "Absent";
      throw error;
    }
  }
}

const within = (signal: AbortSignal): CallOptions => ({ signal, deadlineMs: CALL_DEADLINE_MS });

/** Whether everything that is wanted is there, whatever else is: the API server adds fields, and so do newer versions of it. */
export function covers(present: unknown, wanted: unknown): boolean {
  if (Array.isArray(wanted)) {
    return (
      Array.isArray(present) &&
      present.length === wanted.length &&
      wanted.every((value, index) => covers(present[index], value))
    );
  }
  if (!isRecord(wanted)) return present === wanted;
  return isRecord(present) && Object.entries(wanted).every(([key, value]) => covers(present[key], value));
}

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** PEM as the API server's fields hold it. */
export const encodePem = (pem: string): string => Buffer.from(pem).toString("base64");
