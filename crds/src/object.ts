import * as z from "zod";
import { count, digest, integer, listByKey, text, time, word } from "./schema.ts";

/** What every kind shares: metadata as the server returns it, conditions, and the small records of status. */

/** The API group and version of the three kinds. */
export const GROUP = "agentworlds.dev";
export const VERSION = "v1alpha1";
export const API_VERSION = `${GROUP}/${VERSION}` as const;

/**
 * Most characters of the free texts in status. A longer one makes the API server refuse the whole status write, so
 * writers cut with `clip` first.
 */
export const LIMITS = {
  /** `conditions[].message`, `operation.lastError`, messages of hosts, rescues and results. */
  message: 4096,
  /** `description` of a World and of a version. */
  description: 1024,
  /** Names of users, as authenticated. */
  user: 512,
  /** `agent` of a creator: `serviceaccount:<namespace>:<name>` fits. */
  agent: 512,
  conversation: 256,
  /** An image reference with its digest. */
  image: 1024,
  conditions: 32,
  versions: 128,
  rescues: 16,
  lostWork: 16,
  prunedVersions: 64,
  requests: 16,
  /** Ids of requests that came by annotation and are remembered. */
  annotated: 32,
} as const;

/** `1 host`, `2 hosts`: a number with its noun. */
export const counted = (count: number, noun: string): string => `${count} ${count === 1 ? noun : `${noun}s`}`;

/** Cuts a text to at most `max` characters, never inside one, and shows that it was cut. */
export function clip(value: string, max: number): string {
  const characters = [...value];
  if (characters.length <= max && value.length <= max) return value;
  let cut = "";
  for (const character of characters) {
    if (cut.length + character.length > max - 1) break;
    cut += character;
  }
  return `${cut}…`;
}

/** Metadata of an object that was read from the API server. Unknown members are kept. */
export const objectMetaSchema = z.looseObject({
  name: z.string(),
  namespace: z.string().exactOptional(),
  uid: z.string(),
  resourceVersion: z.string(),
  generation: z.int().exactOptional(),
  creationTimestamp: z.string().exactOptional(),
  deletionTimestamp: z.string().exactOptional(),
  finalizers: z.array(z.string()).exactOptional(),
  labels: z.record(z.string(), z.string()).exactOptional(),
  annotations: z.record(z.string(), z.string()).exactOptional(),
});

/** Metadata of an object that is about to be created. */
export const newObjectMetaSchema = z.looseObject({
  name: z.string().exactOptional(),
  generateName: z.string().exactOptional(),
  namespace: z.string().exactOptional(),
  labels: z.record(z.string(), z.string()).exactOptional(),
  annotations: z.record(z.string(), z.string()).exactOptional(),
});

export const conditionSchema = z.object({
  type: word(128).describe("PascalCase name of the condition."),
  status: z.enum(["True", "False", "Unknown"]).describe("`Unknown` when the fact could not be observed."),
  observedGeneration: integer(0, Number.MAX_SAFE_INTEGER)
    .exactOptional()
    .describe("`metadata.generation` that the condition was derived from."),
  lastTransitionTime: time().describe("When `status` last changed."),
  reason: word(128).describe("PascalCase constant; where an Event announces the change, it has the same reason."),
  message: text(LIMITS.message).describe("A sentence for a person: what is so, and what to do. Holds no secret."),
});

/** The standard list of conditions. */
export const conditions = () =>
  listByKey(conditionSchema, { max: LIMITS.conditions, key: "type" })
    .exactOptional()
    .describe("What is known of the object, by type; see Conditions.");

/** `-1` until the first pass over a new object, so that no health check calls it current. */
export const observedGeneration = () =>
  integer(-1, Number.MAX_SAFE_INTEGER).describe(
    "`metadata.generation` that the last complete pass saw; -1 before the first.",
  );

/**
 * Annotation that lets a deleted object go at once, whatever its finalizer waits for. Its value must be the object's own UID, so
 * that no template carries it by accident.
 */
export const SKIP_FINALIZER = "agentworlds.dev/skip-finalizer";

/** Whether somebody wants this very object gone at once. */
export const skipsFinalizer = ({ uid, annotations }: { uid: string; annotations?: Record<string, string> }): boolean =>
  annotations?.[SKIP_FINALIZER] === uid;

/** A Sandbox as the name and the UID of the time: the name alone could be a stranger's by now. */
export const sandboxReferenceSchema = z.object({
  name: word(63).describe("Name of the Sandbox."),
  uid: word(64).describe("UID of the Sandbox."),
});

export const causedBySchema = z.object({
  user: text(LIMITS.user).describe("Authenticated user name."),
  agent: word(LIMITS.agent)
    .exactOptional()
    .describe(
      "Id of the agent; `serviceaccount:<namespace>:<name>` for a ServiceAccount that states none. Absent for a person.",
    ),
  conversation: word(LIMITS.conversation).exactOptional().describe("The agent's conversation."),
});

/** A version by number and digest. The number is absent for a throwaway session, which has no World. */
export const versionPointerSchema = z.object({
  version: count().exactOptional().describe("Number of the version; absent for a throwaway session."),
  digest: digest().describe("Digest of the manifest."),
});

/** The answer to a request. */
export const requestResultSchema = z.object({
  outcome: z
    .enum(["Succeeded", "Refused", "Failed"])
    .describe("`Refused`: by rule, a repetition would be refused too. `Failed`: the attempt went wrong."),
  code: word(64).exactOptional().describe("PascalCase constant for programs."),
  message: text(LIMITS.message).exactOptional().describe("A sentence for a person."),
  version: count().exactOptional().describe("Version that was made."),
  digest: digest().exactOptional().describe("Digest of the version that was made."),
  at: time().describe("When it was answered."),
});

/** Members of a request that every kind has; the client's id makes a repetition harmless. */
export const requestFields = {
  id: word(64).describe("The client's idempotency key; the same id again is the same request."),
  user: text(LIMITS.user).describe("Authenticated user who asked."),
  at: time().describe("When it was asked."),
} as const;

/** The platforms a World can be fixed to: `os/architecture`, as in an image index. */
export const platform = () => z.enum(["linux/amd64", "linux/arm64"]);

export type ObjectMeta = z.infer<typeof objectMetaSchema>;
export type NewObjectMeta = z.infer<typeof newObjectMetaSchema>;
export type Condition = z.infer<typeof conditionSchema>;
export type CausedBy = z.infer<typeof causedBySchema>;
export type SandboxReference = z.infer<typeof sandboxReferenceSchema>;
export type VersionPointer = z.infer<typeof versionPointerSchema>;
export type Platform = z.infer<ReturnType<typeof platform>>;
