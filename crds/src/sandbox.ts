import * as z from "zod";
import type { KindDefinition, KindResource } from "./definition.ts";
import { AGE_COLUMN, objectSchemas, REASON_COLUMN, resourceOf, UNOBSERVED } from "./kind.ts";
import {
  causedBySchema,
  conditions,
  LIMITS,
  observedGeneration,
  requestFields,
  requestResultSchema,
  versionPointerSchema,
} from "./object.ts";
import { rescueOperations } from "./rescue.ts";
import {
  type CelRule,
  count,
  digest,
  exactlyOne,
  hasExactlyOne,
  list,
  listByKey,
  matching,
  objectName,
  quantity,
  rule,
  seconds,
  text,
  time,
  transition,
  word,
} from "./schema.ts";
import { imageReference } from "./source.ts";
import { hookOutcome, recoverySchema } from "./world.ts";

const ENVIRONMENT_MAX = 64;

const environmentVariableSchema = rule(
  z.object({
    name: matching(/^[A-Za-z_][A-Za-z0-9_]*$/, {
      max: 256,
      message: "must be a variable name: letters, digits and '_', not beginning with a digit",
    }).describe("Name of the variable."),
    value: text(4096).exactOptional().describe("Its value, at most 4096 characters; may be empty."),
    secretKeyRef: z
      .object({
        name: matching(/^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/, {
          max: 253,
          message: "must be the name of a Secret of the same namespace",
        }).describe("Name of a Secret of the same namespace."),
        key: matching(/^[-._a-zA-Z0-9]+$/, {
          max: 253,
          message: "must be a key of a Secret: letters, digits, '-', '_' and '.'",
        }).describe("Key in the Secret."),
      })
      .exactOptional()
      .describe("Takes the value from a Secret that whoever sets `env` may read."),
  }),
  {
    rule: exactlyOne("value", "secretKeyRef"),
    message: "exactly one of value and secretKeyRef must be set",
  },
  (variable) => hasExactlyOne(variable, "value", "secretKeyRef"),
);

/**
 * A rule on `spec` and not on the field itself: a field's own rule does not run when the field is set for the first time
 * or removed.
 */
const immutable = (field: string): CelRule => ({
  rule: `has(self.${field}) ? has(oldSelf.${field}) && self.${field} == oldSelf.${field} : !has(oldSelf.${field})`,
  message: `${field} cannot be set, changed or removed after creation: create another Sandbox`,
  fieldPath: `.${field}`,
  reason: "FieldValueForbidden",
});

const sandboxFields = z.object({
  world: z
    .object({
      name: objectName().describe("Name of a World of the same namespace."),
      version: count()
        .exactOptional()
        .describe("Version of the first boot. Unset: the newest. Later boots start from the newest."),
    })
    .exactOptional()
    .describe("The World to work in. Exactly one of `world` and `image`; immutable."),
  image: imageReference()
    .exactOptional()
    .describe("Image of a throwaway session: nothing is saved. Exactly one of `world` and `image`; immutable."),
  runtime: z
    .object({ name: objectName().describe("Name of the Runtime.") })
    .exactOptional()
    .describe("Where to run. Unset: the World's Runtime, else the Runtime whose `selection` is `Default`. Immutable."),
  mode: z
    .enum(["Running", "Hibernated"])
    .default("Running")
    .describe("`Running` until the deadline; `Hibernated` ends compute in a new version and keeps the Sandbox."),
  ttlSeconds: seconds()
    .exactOptional()
    .describe(
      "Seconds to run after becoming Ready or after a touch; 1 to 2592000 (30 days). Unset: the World's `session.ttlSeconds`.",
    ),
  maxLifetimeSeconds: seconds()
    .exactOptional()
    .describe(
      "Seconds to run from one boot at most, however often it is touched; 1 to 2592000 (30 days). Unset: the World's `session.maxLifetimeSeconds`.",
    ),
  agent: z
    .object({
      id: matching(/^[!-9;-~]+$/, {
        max: 128,
        message:
          "must be printable characters without spaces and ':' (serviceaccount:… is given by the API server only)",
      }).describe("The agent's own name for itself."),
      conversation: matching(/^[!-~]+$/, {
        max: LIMITS.conversation,
        message: "must be printable characters without spaces",
      })
        .exactOptional()
        .describe("Its conversation."),
    })
    .exactOptional()
    .describe("The agent that works in this session; absent for a person. Every version carries it. Immutable."),
  env: listByKey(environmentVariableSchema, { max: ENVIRONMENT_MAX, key: "name" })
    .exactOptional()
    .describe(
      "Environment of the session's commands, at most 64 variables; in force for the next command. Never part of the container or of a version.",
    ),
  resources: z
    .object({
      cpu: quantity().exactOptional().describe("CPU limit, for example `500m` or `2`. Unset: the Runtime's."),
      memory: quantity().exactOptional().describe("Memory limit, for example `2Gi`. Unset: the Runtime's."),
    })
    .exactOptional()
    .describe("Limits of the container; in force from the next boot."),
  closePolicy: z
    .enum(["Snapshot", "Discard"])
    .default("Snapshot")
    .describe(
      "What closing or deleting does with work that is not yet a version: `Snapshot` publishes it, `Discard` drops it.",
    ),
  rescuePolicy: z
    .enum(["Wait", "Ignore"])
    .default("Wait")
    .describe(
      "What a boot does while the World has a rescue: `Wait` until it is a version, discarded or over; `Ignore` boots from head without that work, and every version of this boot names the rescues it ignored. In force from the next boot.",
    ),
  ttlSecondsAfterClosed: seconds(0)
    .exactOptional()
    .describe("Seconds after closing until the Sandbox object is deleted; 0 to 2592000 (30 days). Unset: it stays."),
});

const oneSource = rule(
  sandboxFields,
  {
    rule: exactlyOne("world", "image"),
    message: "exactly one of world and image must be set",
  },
  (spec) => hasExactlyOne(spec, "world", "image"),
);

const boundedTtl = rule(
  oneSource,
  {
    rule: "!has(self.ttlSeconds) || !has(self.maxLifetimeSeconds) || self.ttlSeconds <= self.maxLifetimeSeconds",
    message: "ttlSeconds must not be greater than maxLifetimeSeconds",
    fieldPath: ".ttlSeconds",
  },
  (spec) =>
    spec.ttlSeconds === undefined ||
    spec.maxLifetimeSeconds === undefined ||
    spec.ttlSeconds <= spec.maxLifetimeSeconds,
);

export const sandboxSpecSchema = transition(
  boundedTtl,
  immutable("world"),
  immutable("image"),
  immutable("runtime"),
  immutable("agent"),
);

/** `status.phase`, derived from the rest of the status for `kubectl get`; nothing reads it. */
export const SANDBOX_PHASES = [
  "Pending",
  "Waiting",
  "Provisioning",
  "Running",
  "Draining",
  "Hibernating",
  "Hibernated",
  "Closing",
  "Closed",
  "Failed",
] as const;

const requestSchema = z.object({
  ...requestFields,
  verb: z.enum(["Touch", "Snapshot", "Close"]).describe("What is asked for."),
  parameters: z
    .object({
      ttlSeconds: seconds().exactOptional().describe("`Touch`: seconds from now. Unset: the session's ttl."),
      description: text(LIMITS.description).exactOptional().describe("`Snapshot`, `Close`: prose of the version."),
      discard: z
        .enum(["Snapshot", "Discard"])
        .exactOptional()
        .describe("`Close`: what becomes of unsaved work, instead of `spec.closePolicy`."),
    })
    .exactOptional()
    .describe("Parameters of the verb."),
  result: requestResultSchema.exactOptional().describe("The answer; absent while it is being worked on."),
});

const operationSchema = z.object({
  id: word(64).describe("Id, also in the version's annotations and in `World.status.pending`."),
  verb: z.enum(["Hibernate", "Snapshot", "Close"]).describe("What is being done."),
  reason: word(64).describe("What caused it; becomes the version's reason."),
  stage: z
    .enum(["Intended", "Frozen", "Captured", "Uploaded", "Manifested", "Verified", "Committed", "Discarded"])
    .describe("The last step that is done; the next pass goes on from here."),
  outcome: z
    .enum(["Snapshot", "Discard"])
    .exactOptional()
    .describe("`Discard`: it ends without a version. Unset: `Snapshot`."),
  since: time().describe("When it was intended."),
  attempts: count().describe("Attempts so far."),
  lastError: text(LIMITS.message).exactOptional().describe("What the last attempt failed on."),
  retryAt: time().exactOptional().describe("When the next attempt is due."),
  causedBy: causedBySchema.exactOptional().describe("Who caused it; absent when a deadline did."),
  supersedes: word(64)
    .exactOptional()
    .describe("Id of a failed operation that this one takes the place of, while what that left behind is removed."),
  request: word(64).exactOptional().describe("Id of the request that asked for it; absent when none did."),
  description: text(LIMITS.description).exactOptional().describe("Prose of the version. Unset: the one in force."),
  consistency: word(64)
    .exactOptional()
    .describe("How the tree stands while it is captured, as in `World.status.versions[]`; set from `Frozen` on."),
  recovered: recoverySchema
    .exactOptional()
    .describe("How the container had ended by itself before it was captured; absent when it had not."),
  hook: z
    .object({
      outcome: hookOutcome().describe("How it ended."),
      message: text(LIMITS.message).exactOptional().describe("Why it failed, for a person."),
    })
    .exactOptional()
    .describe("What became of the World's `snapshot.hook` before the freeze; absent where none was run."),
  version: count().exactOptional().describe("Number of the version it made; set from `Committed` on."),
  digest: digest().exactOptional().describe("Digest of the version it made; set from `Committed` on."),
});

const endingSchema = z.object({
  boot: count().describe("The boot that ended."),
  reason: word(64).describe("PascalCase constant: why."),
  outcome: z
    .enum(["Published", "Discarded", "Lost", "Rescued"])
    .describe(
      "`Published`: its work is in a version that was read back. `Discarded`: dropped as asked for. `Lost`: the container was gone before it could be captured. `Rescued`: the stopped container is kept on its host.",
    ),
  message: text(LIMITS.message).describe("The same for a person."),
  at: time().describe("When it had ended."),
  rescue: z
    .object({
      operation: word(64).describe("The rescue's name on World and Runtime."),
      expiresAt: time().describe("When its time is over."),
    })
    .exactOptional()
    .describe("The rescue that its work is in; set with `Rescued`."),
  failedBoots: count()
    .exactOptional()
    .describe("How many boots in a row were given up because they were not Ready in time; absent when this one was."),
  retryAt: time().exactOptional().describe("When a boot that was not Ready in time is tried again."),
});

const computeSchema = z.object({
  runtime: word(63).describe("Name of the Runtime."),
  host: word(63).describe("Name of the host in the Runtime."),
  id: word(256).describe("Id of the container on that host."),
  boot: count().describe("The boot it belongs to."),
  bootDeadlineAt: time()
    .exactOptional()
    .describe("When the boot is given up unless it is Ready; a pause later it is tried again."),
  provisionedAt: time().exactOptional().describe("When the container was first seen to answer; absent until then."),
  engine: word(128)
    .exactOptional()
    .describe(
      "Id of the engine that made it, from the label of its volume `agentworlds-engine-<installation>`. Another engine at the host's address is not believed about it.",
    ),
  pid: count()
    .exactOptional()
    .describe(
      "Number, on its host, of the container's first process. Another one: the container was started anew from outside, and counts as ended.",
    ),
  unreachableAt: time()
    .exactOptional()
    .describe(
      "Since when its host does not answer; the Runtime's `hostLossSeconds` count from here. Absent while it answers.",
    ),
  saves: z
    .enum(["Versions", "Nothing"])
    .exactOptional()
    .describe(
      "Decided at the boot. `Nothing`: a throwaway image, a version below head, over which may not be published, or one with as many layers as an engine boots. Unset: `Versions`.",
    ),
  ttlSeconds: seconds()
    .exactOptional()
    .describe("Seconds that the touch which woke it asked for. Unset: the session's ttl."),
});

export const sandboxStatusSchema = z.object({
  observedGeneration: observedGeneration(),
  observedMode: z.enum(["Running", "Hibernated"]).exactOptional().describe("`spec.mode` that was last acted on."),
  phase: z.enum(SANDBOX_PHASES).exactOptional().describe("One word for `kubectl get`, derived; use the conditions."),
  conditions: conditions(),
  boot: count().exactOptional().describe("How often compute was made; part of its name."),
  failedBoots: count()
    .exactOptional()
    .describe(
      "How many of the boots that have ended, the last ones in a row, were never Ready. As long as it is all of them, `spec.world.version` decides.",
    ),
  world: z
    .object({ uid: word(64).exactOptional().describe("UID of the World.") })
    .exactOptional()
    .describe("The World of the first boot. One of the same name and another UID refuses the wake."),
  compute: computeSchema.exactOptional().describe("The container, while there may be one."),
  bootedFrom: versionPointerSchema.exactOptional().describe("Version this boot started from."),
  base: versionPointerSchema.exactOptional().describe("This session's last version, else `bootedFrom`."),
  ignoredRescues: rescueOperations()
    .exactOptional()
    .describe("Rescues of the World that this boot was told to ignore; its versions name them."),
  expiresAt: time().exactOptional().describe("When it hibernates unless touched; absent while not running."),
  lifetimeEndsAt: time().exactOptional().describe("When it hibernates whatever happens; set at each boot."),
  lastActivityAt: time().exactOptional().describe("Last touch or command."),
  operation: operationSchema.exactOptional().describe("The snapshot or ending in progress."),
  requests: listByKey(requestSchema, { max: LIMITS.requests, key: "id" })
    .exactOptional()
    .describe(
      "Verbs asked for through the sessions API or by annotation, with their answers; at most 16, answered ones make room.",
    ),
  snapshotsRequested: list(word(64), LIMITS.annotated)
    .exactOptional()
    .describe(
      "Values of the annotation `agentworlds.dev/snapshot-requested` that were taken up, newest last; none of them is taken up again. At most 32.",
    ),
  lastEnding: endingSchema.exactOptional().describe("How the last boot ended; absent while one runs."),
  lastSnapshot: z
    .object({
      version: count().describe("Number of the version."),
      digest: versionPointerSchema.shape.digest,
      at: time().describe("When its digest had been read back."),
      reason: word(64).describe("What made it."),
    })
    .exactOptional()
    .describe("The last version this session published."),
  closed: z
    .object({
      version: versionPointerSchema.shape.version.describe(
        "Version the session ended in; absent when nothing was saved.",
      ),
      digest: versionPointerSchema.shape.digest.exactOptional().describe("Its digest."),
      at: time().describe("When it was closed; `ttlSecondsAfterClosed` counts from here."),
    })
    .exactOptional()
    .describe("The end of the session; terminal."),
});

const schemas = objectSchemas("Sandbox", { spec: sandboxSpecSchema, status: sandboxStatusSchema.default(UNOBSERVED) });

/** A Sandbox as the API server returns it. */
export const sandboxSchema = schemas.stored;

/** A Sandbox that is about to be created. */
export const newSandboxSchema = schemas.fresh;

export type SandboxSpec = z.infer<typeof sandboxSpecSchema>;
export type SandboxStatus = z.infer<typeof sandboxStatusSchema>;
export type Sandbox = z.infer<typeof sandboxSchema>;
export type NewSandbox = z.input<typeof newSandboxSchema>;
export type SandboxPhase = (typeof SANDBOX_PHASES)[number];
export type SandboxEnding = z.infer<typeof endingSchema>;
export type SandboxCompute = z.infer<typeof computeSchema>;
export type SandboxOperation = z.infer<typeof operationSchema>;
export type SandboxRequest = z.infer<typeof requestSchema>;
export type SandboxRequestResult = z.infer<typeof requestResultSchema>;
export type EnvironmentVariable = z.infer<typeof environmentVariableSchema>;

export const sandboxDefinition: KindDefinition = {
  kind: "Sandbox",
  plural: "sandboxes",
  singular: "sandbox",
  shortName: "sbx",
  scope: "Namespaced",
  description: "A Sandbox is one session: a container that boots from a version of a World and ends in a new one.",
  spec: sandboxSpecSchema,
  status: sandboxStatusSchema,
  columns: [
    { name: "World", type: "string", jsonPath: ".spec.world.name", description: "The World worked in." },
    { name: "Phase", type: "string", jsonPath: ".status.phase", description: "What it is doing, in one word." },
    {
      name: "Version",
      type: "integer",
      jsonPath: ".status.base.version",
      description: "The session's last version, else the one it booted from.",
    },
    // A string, not a date: kubectl prints a date as an age, and one in the future as <invalid>.
    {
      name: "Expires",
      type: "string",
      jsonPath: ".status.expiresAt",
      description: "When it hibernates unless touched.",
    },
    REASON_COLUMN,
    {
      name: "Runtime",
      type: "string",
      jsonPath: ".status.compute.runtime",
      description: "Where it runs.",
      priority: 1,
    },
    {
      name: "Host",
      type: "string",
      jsonPath: ".status.compute.host",
      description: "The host it runs on.",
      priority: 1,
    },
    { name: "Agent", type: "string", jsonPath: ".spec.agent.id", description: "The agent at work.", priority: 1 },
    AGE_COLUMN,
  ],
};

export const SANDBOXES: KindResource = resourceOf(sandboxDefinition);
