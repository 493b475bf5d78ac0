import * as z from "zod";
import type { KindDefinition, KindResource } from "./definition.ts";
import { AGE_COLUMN, objectSchemas, REASON_COLUMN, readyColumn, resourceOf, UNOBSERVED } from "./kind.ts";
import {
  causedBySchema,
  conditions,
  LIMITS,
  observedGeneration,
  platform,
  requestFields,
  requestResultSchema,
  sandboxReferenceSchema,
} from "./object.ts";
import { lostWorkSchema, rescueFields, rescueOperations, retryFields } from "./rescue.ts";
import {
  bytes,
  count,
  digest,
  exactlyOne,
  hasExactlyOne,
  INT32_MAX,
  integer,
  list,
  listByKey,
  objectName,
  rule,
  seconds,
  setOf,
  text,
  time,
  transition,
  word,
} from "./schema.ts";
import { imageReference, repositoryName } from "./source.ts";

const sourceSchema = rule(
  z.object({
    image: imageReference()
      .exactOptional()
      .describe(
        "Image to start from, by tag or digest; at most 512 characters. It is resolved to a digest once and copied into the World's own repository as version 0; the tag is never looked at again.",
      ),
    repository: z
      .object({
        name: repositoryName().describe(
          "As `status.repository` of the World named it; the registry's host may be left out.",
        ),
      })
      .exactOptional()
      .describe(
        "Repository of an earlier World of this namespace, whose versions are adopted: they are brought into an own repository under the same numbers and digests, and the newest is head.",
      ),
  }),
  { rule: exactlyOne("image", "repository"), message: "exactly one source must be set: image, repository" },
  (from) => hasExactlyOne(from, "image", "repository"),
);

const sessionSchema = rule(
  z.object({
    ttlSeconds: seconds()
      .default(900)
      .describe(
        "Seconds a Sandbox of this World runs after it became Ready or was last touched; 1 to 2592000 (30 days).",
      ),
    maxLifetimeSeconds: seconds()
      .default(14_400)
      .describe(
        "Seconds a Sandbox of this World may run from one boot, however often it is touched; 1 to 2592000 (30 days).",
      ),
  }),
  {
    rule: "self.ttlSeconds <= self.maxLifetimeSeconds",
    message: "ttlSeconds (900 when unset) must not be greater than maxLifetimeSeconds (14400 when unset)",
    fieldPath: ".ttlSeconds",
  },
  (session) => session.ttlSeconds <= session.maxLifetimeSeconds,
);

const hookSchema = z.object({
  command: list(text(4096), 64)
    .min(1)
    .describe("Program and arguments, as a command of the session: with its environment, as the image's user."),
  timeoutSeconds: integer(1, 300)
    .default(30)
    .describe("Seconds after which it is killed and counts as failed; 1 to 300."),
  onFailure: z
    .enum(["Continue", "Abort"])
    .default("Continue")
    .describe(
      "`Continue`: the version is made all the same and says that the hook failed. `Abort`: a snapshot that somebody asked for fails; an ending goes on in any case.",
    ),
});

const snapshotSchema = z.object({
  hook: hookSchema
    .exactOptional()
    .describe("Command that runs in the session before it is frozen for a version, so that a database can flush."),
});

const retentionSchema = z.object({
  keepVersions: integer(0, 64)
    .default(10)
    .describe(
      "Versions to keep, newest first; older ones are deleted from the registry. 0 deletes nothing; at most 64.",
    ),
  pinned: setOf(count(), 64).exactOptional().describe("Numbers of versions that are never deleted; at most 64."),
});

export const worldSpecSchema = transition(
  z.object({
    from: sourceSchema.describe("What the World starts from. Exactly one member; immutable."),
    description: text(LIMITS.description)
      .exactOptional()
      .describe(
        "Prose for people and agents, at most 1024 characters. Every version carries the text in force when it was made: what was stated last, here or for a snapshot.",
      ),
    runtime: z
      .object({ name: objectName().describe("Name of the Runtime.") })
      .exactOptional()
      .describe(
        "Where Sandboxes of this World run unless they name a Runtime. Unset: the Runtime whose `selection` is `Default`.",
      ),
    session: sessionSchema
      .default({ ttlSeconds: 900, maxLifetimeSeconds: 14_400 })
      .describe("Times of a Sandbox that states none."),
    snapshot: snapshotSchema.exactOptional().describe("How versions are made."),
    retention: retentionSchema.default({ keepVersions: 10 }).describe("Which versions stay in the registry."),
    deletionPolicy: z
      .enum(["Retain", "Delete"])
      .default("Retain")
      .describe(
        "What becomes of the versions when the World is deleted: `Retain` keeps them in the registry, `Delete` removes them.",
      ),
  }),
  {
    rule: "self.from == oldSelf.from",
    message: "from cannot be changed after creation: create another World",
    fieldPath: ".from",
    reason: "FieldValueForbidden",
  },
);

/** The one source of a World. */
export type WorldSource =
  | { readonly kind: "Image"; readonly image: string }
  | { readonly kind: "Repository"; readonly name: string };

/** Thrown for a World without a source. The API server refuses one, so this object never was in it. */
export class SourceMissing extends Error {
  override readonly name = "SourceMissing";
  constructor() {
    super("spec.from names no source");
  }
}

/** The source that is set. Throws `SourceMissing`. */
export function sourceOf(spec: z.infer<typeof worldSpecSchema>): WorldSource {
  const { image, repository } = spec.from;
  if (image !== undefined) return { kind: "Image", image };
  if (repository !== undefined) return { kind: "Repository", name: repository.name };
  throw new SourceMissing();
}

/** Why a version was made. A string in the schema, so that an older CRD accepts a newer operator's reason. */
export const VERSION_REASONS = {
  Genesis: "Genesis",
  Deadline: "Deadline",
  Lifetime: "Lifetime",
  Close: "Close",
  Delete: "Delete",
  Mode: "Mode",
  Drain: "Drain",
  Snapshot: "Snapshot",
  Crash: "Crash",
} as const;
export type VersionReason = (typeof VERSION_REASONS)[keyof typeof VERSION_REASONS];

/** How the tree stood while it was captured. */
export const CONSISTENCIES = {
  /** The source image itself. */
  Image: "Image",
  /** Every process was frozen. */
  Frozen: "Frozen",
  /** A snapshot whose processes ran on, because the host could not freeze them: files may be of different moments. */
  Fuzzy: "Fuzzy",
  /** The container was dead: what its processes had not written is not in it. */
  Crash: "Crash",
} as const;
export type Consistency = (typeof CONSISTENCIES)[keyof typeof CONSISTENCIES];

/** What was wrong where work became a version although its session had not ended in order. */
export const recoverySchema = z.object({
  reason: word(64).describe(
    "PascalCase constant: `ContainerExited` or `OutOfMemory`, how the container had ended; `Rescued`, it was kept for a while and published later.",
  ),
  exitCode: integer(-1, INT32_MAX)
    .exactOptional()
    .describe(
      "Exit code of the container by its engine. No proof of anything: after a crash of the host an engine may say 0.",
    ),
});

/** How the hook before a capture ended. */
export const hookOutcome = () => z.enum(["Succeeded", "Failed"]);

const worldVersionSchema = z.object({
  version: count().describe("Number; 0 is the genesis. Gaps are legal: a number is used up by the attempt."),
  digest: digest().describe("Digest of the manifest."),
  operation: word(64).describe("Id of the operation that made it; a retry finds its own version by it."),
  parent: digest().exactOptional().describe("Digest of the version it was made from; absent at the genesis."),
  sizeBytes: bytes()
    .exactOptional()
    .describe(
      "Compressed bytes this version added to its parent; absent when it was read back from a registry that does not say.",
    ),
  totalBytes: bytes().describe("Compressed bytes of all its layers."),
  layers: count().describe("Number of layers."),
  createdAt: time().describe("When its number was reserved."),
  reason: word(64).describe(
    "What made it: `Genesis`, `Deadline`, `Lifetime`, `Close`, `Delete`, `Mode`, `Drain`, `Snapshot` or `Crash`.",
  ),
  consistency: word(64).describe(
    "`Image`, `Frozen` (all processes were stopped), `Fuzzy` (they ran on: a snapshot on a host that could not freeze them) or `Crash` (captured from a dead container).",
  ),
  recovered: recoverySchema
    .exactOptional()
    .describe("Set when the session had not ended in order and its work was saved from what was left of it."),
  hook: hookOutcome()
    .exactOptional()
    .describe("What became of `spec.snapshot.hook` before it was captured; absent where none was run."),
  description: text(LIMITS.description).describe("Prose in force when it was made."),
  causedBy: causedBySchema.describe("Who caused it."),
  sandbox: sandboxReferenceSchema.exactOptional().describe("The session it was made in; absent at the genesis."),
  ignoredRescues: rescueOperations()
    .exactOptional()
    .describe("Rescues whose work is not in it because its session was told to ignore them."),
});

const pendingSchema = z.object({
  operation: word(64).describe("Id of the operation."),
  version: count().describe("Number it reserved."),
  sandbox: sandboxReferenceSchema.exactOptional().describe("The session it belongs to; absent at the genesis."),
  base: digest().exactOptional().describe("Digest that `head` had, and must still have at the commit."),
  since: time().describe("When it was reserved; the creation time of the version."),
});

const holderSchema = z.object({
  sandbox: word(63).describe("Name of the Sandbox."),
  uid: word(64).describe("UID of the Sandbox."),
  causedBy: causedBySchema.describe("Creator of the Sandbox."),
  acquiredAt: time().describe("Since when."),
  ignoredRescues: rescueOperations().exactOptional().describe("Rescues it was told to ignore."),
});

const rescueSchema = z.object({
  ...rescueFields,
  ...retryFields,
  runtime: word(63).describe("Runtime that keeps the container."),
});

/** Verbs that people put to a World. */
export const WORLD_VERBS = ["RetryRescue", "ExportRescue", "DiscardRescue"] as const;
export type WorldVerb = (typeof WORLD_VERBS)[number];

const worldRequestSchema = z.object({
  ...requestFields,
  verb: z.enum(WORLD_VERBS).describe("What is asked for."),
  parameters: z.object({ operation: word(64).describe("Name of the rescue.") }).describe("What it is asked for."),
  result: requestResultSchema
    .extend({
      image: word(LIMITS.image).exactOptional().describe("`ExportRescue`: the image by digest, as it was read back."),
    })
    .exactOptional()
    .describe("The answer; absent while it is being worked on."),
});

const prunedVersionSchema = z.object({
  version: count().describe("Number of the version that was deleted."),
  digest: digest().describe("Digest it had."),
  prunedAt: time().describe("When it left `versions`."),
  deletedAt: time().exactOptional().describe("When the registry confirmed the deletion; absent while it is due."),
  reason: word(128).describe("PascalCase constant: why."),
});

export const worldStatusSchema = z.object({
  observedGeneration: observedGeneration(),
  conditions: conditions(),
  repository: word(512).exactOptional().describe("The World's own repository in the installation's registry."),
  genesis: z
    .object({
      image: word(LIMITS.image).describe("The source as it was written."),
      digest: digest().describe("Digest it was resolved to, of the one platform."),
      platform: platform().describe("The platform the World is fixed to."),
    })
    .exactOptional()
    .describe("What the World started from."),
  head: z
    .object({
      version: count().describe("Number of the version."),
      digest: digest().describe("Digest of the manifest."),
      image: word(LIMITS.image).describe("The version by digest, as `docker run` takes it."),
    })
    .exactOptional()
    .describe("The version the next Sandbox boots from."),
  registryHead: z
    .object({
      version: count().describe("Number of the newest version in the registry."),
      digest: digest().exactOptional().describe("Its digest; absent when the registry contradicts itself about it."),
    })
    .exactOptional()
    .describe(
      "Present while the registry has newer versions of this World than `head`: nothing boots, nothing is published.",
    ),
  versions: list(worldVersionSchema, LIMITS.versions)
    .exactOptional()
    .describe("Versions that exist, newest last; at most 128."),
  nextVersion: count().exactOptional().describe("The next number to reserve; it only grows."),
  observedDescription: text(LIMITS.description)
    .exactOptional()
    .describe(
      "`spec.description` as a version has taken it over: one that differs is new, and the next version carries it.",
    ),
  pending: pendingSchema.exactOptional().describe("A publication on its way: reserved and not yet committed."),
  holder: holderSchema.exactOptional().describe("The one Sandbox that may write."),
  rescues: list(rescueSchema, LIMITS.rescues)
    .exactOptional()
    .describe("Containers kept because their work could not be published; at most 16."),
  lostWork: list(lostWorkSchema, LIMITS.lostWork)
    .exactOptional()
    .describe("Work that ended in no version, newest last; the last 16."),
  requests: listByKey(worldRequestSchema, { max: LIMITS.requests, key: "id" })
    .exactOptional()
    .describe("Verbs asked for through the sessions API, with their answers; at most 16, answered ones make room."),
  prunedVersions: list(prunedVersionSchema, LIMITS.prunedVersions)
    .exactOptional()
    .describe("Versions that retention deleted, newest last; the last 64."),
});

const schemas = objectSchemas("World", { spec: worldSpecSchema, status: worldStatusSchema.default(UNOBSERVED) });

/** A World as the API server returns it. */
export const worldSchema = schemas.stored;

/** A World that is about to be created. */
export const newWorldSchema = schemas.fresh;

export type WorldSpec = z.infer<typeof worldSpecSchema>;
export type WorldStatus = z.infer<typeof worldStatusSchema>;
export type World = z.infer<typeof worldSchema>;
export type NewWorld = z.input<typeof newWorldSchema>;
export type WorldVersion = z.infer<typeof worldVersionSchema>;
export type WorldPending = z.infer<typeof pendingSchema>;
export type WorldHolder = z.infer<typeof holderSchema>;
export type Recovery = z.infer<typeof recoverySchema>;
export type LostWork = z.infer<typeof lostWorkSchema>;
export type WorldRequest = z.infer<typeof worldRequestSchema>;
export type WorldRequestResult = NonNullable<WorldRequest["result"]>;
export type WorldRescue = z.infer<typeof rescueSchema>;
export type PrunedVersion = z.infer<typeof prunedVersionSchema>;

export const worldDefinition: KindDefinition = {
  kind: "World",
  plural: "worlds",
  singular: "world",
  shortName: "wld",
  scope: "Namespaced",
  description: "A World is a durable, versioned environment that is built up across sessions.",
  spec: worldSpecSchema,
  status: worldStatusSchema,
  columns: [
    { name: "Head", type: "integer", jsonPath: ".status.head.version", description: "Number of the newest version." },
    { name: "Holder", type: "string", jsonPath: ".status.holder.sandbox", description: "The Sandbox that may write." },
    readyColumn("Whether Sandboxes can boot from it."),
    {
      name: "Rescues",
      type: "string",
      jsonPath: ".status.rescues[*].operation",
      description: "Work that is kept on a host because it could not be published.",
    },
    REASON_COLUMN,
    {
      name: "Digest",
      type: "string",
      jsonPath: ".status.head.digest",
      description: "Digest of the newest version.",
      priority: 1,
    },
    {
      name: "From",
      type: "string",
      jsonPath: ".status.genesis.image",
      description: "What it started from.",
      priority: 1,
    },
    AGE_COLUMN,
  ],
};

export const WORLDS: KindResource = resourceOf(worldDefinition);
