/**
 * What a version says about itself in the annotations of its manifest (DESIGN §11, docs/adr/0012): written when it is
 * published, read when a lineage has to be rebuilt from the registry. What is written here can be read back here.
 */
import {
  type CausedBy,
  causedBySchema,
  clip,
  hookOutcome,
  LIMITS,
  type Platform,
  type Recovery,
  recoverySchema,
  sandboxReferenceSchema,
} from "@agentworlds/crds";
import { z } from "zod";
import { isDigest } from "../registry/digest.ts";

/** What an image of a World says about itself; becomes the manifest's annotations. */
export interface ImageFacts {
  readonly operation: string;
  readonly world: { readonly namespace: string; readonly name: string; readonly uid: string };
  /** Absent: an image beside the lineage, which no lineage is rebuilt from. */
  readonly version?: number;
  /** Digest of the version it derives from; absent at genesis. */
  readonly parent?: string;
  readonly reason: string;
  readonly consistency: string;
  readonly description: string;
  /** Creator of the World, as stamped at admission. */
  readonly createdBy: CausedBy;
  /** Who caused this version. */
  readonly causedBy: CausedBy;
  /** ISO time of the reservation. */
  readonly createdAt: string;
  /** The genesis image as named by the World, its digest, and the platform that the World is fixed to. */
  readonly genesis: { readonly image: string; readonly digest: string; readonly platform?: string };
  /** The session it was made in; absent at genesis. */
  readonly sandbox?: { readonly name: string; readonly uid: string };
  /** Set when the session had not ended in order. */
  readonly recovered?: Recovery | undefined;
  /** Rescues whose work is not in it because its session was told to ignore them. */
  readonly ignoredRescues?: string[];
  /** How the World's hook before the capture ended. */
  readonly hook?: "Succeeded" | "Failed" | undefined;
  /** Compressed bytes it added to its parent: once the parent is pruned, nothing else tells. */
  readonly sizeBytes?: number;
}

/** What a version says about itself. */
export interface VersionFacts extends ImageFacts {
  readonly version: number;
}

/** The facts as a manifest carries them. What an older operator did not write is absent, never guessed. */
export interface RecordedFacts extends Omit<VersionFacts, "createdBy" | "causedBy" | "genesis" | "parent"> {
  readonly parent?: `sha256:${string}`;
  readonly causedBy?: CausedBy;
  readonly genesis?: { readonly image: string; readonly digest: `sha256:${string}`; readonly platform?: Platform };
  readonly recovered?: Recovery;
  readonly hook?: "Succeeded" | "Failed";
}

/** `foreign`: not made by this product. `unreadable`: it says that it is a version and does not say which, or of what. */
export type AnnotationReading =
  | { readonly kind: "version"; readonly facts: RecordedFacts }
  | { readonly kind: "foreign" }
  | { readonly kind: "unreadable"; readonly because: string };

const ANNOTATION = "dev.agentworlds.";
const CREATED = "org.opencontainers.image.created";
const BASE_NAME = "org.opencontainers.image.base.name";
const BASE_DIGEST = "org.opencontainers.image.base.digest";

/** The same facts make the same annotations in the same order, so that a retry makes the same digest. */
export function annotationsOf(facts: ImageFacts): Readonly<Record<string, string>> {
  const { sandbox, recovered, hook, ignoredRescues, sizeBytes, genesis } = facts;
  return {
    [`${ANNOTATION}operation`]: facts.operation,
    [`${ANNOTATION}world`]: `${facts.world.namespace}/${facts.world.name}`,
    [`${ANNOTATION}world-uid`]: facts.world.uid,
    ...(facts.version === undefined ? {} : { [`${ANNOTATION}version`]: String(facts.version) }),
    ...(facts.parent === undefined ? {} : { [`${ANNOTATION}parent`]: facts.parent }),
    [`${ANNOTATION}reason`]: facts.reason,
    [`${ANNOTATION}created-by`]: JSON.stringify(facts.createdBy),
    [`${ANNOTATION}caused-by`]: JSON.stringify(facts.causedBy),
    [`${ANNOTATION}consistency`]: facts.consistency,
    [`${ANNOTATION}description`]: facts.description,
    ...(sandbox === undefined ? {} : { [`${ANNOTATION}sandbox`]: JSON.stringify(sandbox) }),
    ...(recovered === undefined ? {} : { [`${ANNOTATION}recovered`]: JSON.stringify(recovered) }),
    ...(ignoredRescues?.length ? { [`${ANNOTATION}ignored-rescues`]: ignoredRescues.join(",") } : {}),
    ...(hook === undefined ? {} : { [`${ANNOTATION}hook`]: hook }),
    ...(sizeBytes === undefined ? {} : { [`${ANNOTATION}size-bytes`]: String(sizeBytes) }),
    ...(genesis.platform === undefined ? {} : { [`${ANNOTATION}platform`]: genesis.platform }),
    [CREATED]: facts.createdAt,
    [BASE_NAME]: genesis.image,
    [BASE_DIGEST]: genesis.digest,
  };
}

/** What an entry in the index of lineages says: for people, and so that no two entries are the same bytes. */
export const lineageAnnotations = (
  world: ImageFacts["world"],
  repository: string,
): Readonly<Record<string, string>> => ({
  [`${ANNOTATION}world`]: `${world.namespace}/${world.name}`,
  [`${ANNOTATION}world-uid`]: world.uid,
  [`${ANNOTATION}repository`]: repository,
});

const digest = z.templateLiteral(["sha256:", z.string().regex(/^[0-9a-f]{64}$/)]);
const wholeNumber = z
  .string()
  .regex(/^(0|[1-9][0-9]{0,15})$/)
  .transform(Number);
/** A text that should be JSON and is not, or is of another shape, says nothing. */
const json = <T extends z.ZodType>(schema: T) =>
  z
    .string()
    .transform((text) => parseJson(text))
    .pipe(schema.optional().catch(undefined));

/** What makes a manifest a version of a World: without one of these it cannot be placed in any lineage. */
const identity = z.object({
  operation: z.string().min(1).max(64),
  world: z.string().regex(/^[^/]+\/[^/]+$/),
  "world-uid": z.string().min(1).max(64),
  version: wholeNumber.pipe(z.number().max(2_147_483_647)),
  parent: digest.optional(),
  reason: z.string().min(1).max(64),
  consistency: z.string().min(1).max(64),
  created: z.iso.datetime(),
});

const ids = z
  .string()
  .transform((text) => text.split(","))
  .pipe(z.array(z.string().min(1).max(64)).max(LIMITS.rescues));

/** What a version may leave out. */
const details = z.object({
  description: z.string().default(""),
  "caused-by": json(causedBySchema).optional(),
  sandbox: json(sandboxReferenceSchema).optional(),
  recovered: json(recoverySchema).optional(),
  "ignored-rescues": ids.optional().catch(undefined),
  hook: hookOutcome().optional().catch(undefined),
  "size-bytes": wholeNumber.optional().catch(undefined),
  platform: z.enum(["linux/amd64", "linux/arm64"]).optional().catch(undefined),
});

/** Whose version a manifest says to be, also where the rest cannot be read. */
export const worldUidIn = (annotations: Readonly<Record<string, string>> | undefined): string | undefined =>
  annotations?.[`${ANNOTATION}world-uid`];

/** Whether an image says that it is what this operation made for this World. */
export const isImageOf = (
  annotations: Readonly<Record<string, string>> | undefined,
  { worldUid, operation }: { readonly worldUid: string; readonly operation: string },
): boolean => worldUidIn(annotations) === worldUid && annotations?.[`${ANNOTATION}operation`] === operation;

export function readAnnotations(annotations: Readonly<Record<string, string>> | undefined): AnnotationReading {
  const own = Object.fromEntries(
    Object.entries(annotations ?? {})
      .filter(([key]) => key.startsWith(ANNOTATION))
      .map(([key, value]) => [key.slice(ANNOTATION.length), value]),
  );
  if (Object.keys(own).length === 0) return { kind: "foreign" };
  const known = identity.safeParse({ ...own, created: annotations?.[CREATED] });
  if (!known.success) {
    const fields = known.error.issues.map(({ path }) => path.join(".")).join(", ");
    return { kind: "unreadable", because: `its annotations do not say, or say wrongly: ${fields}` };
  }
  const more = details.parse(own);
  const [namespace = "", name = ""] = known.data.world.split("/");
  const { parent } = known.data;
  const { recovered, hook, platform } = more;
  const genesis = readGenesis(annotations ?? {}, platform);
  return {
    kind: "version",
    facts: {
      operation: known.data.operation,
      world: { namespace, name, uid: known.data["world-uid"] },
      version: known.data.version,
      ...(parent === undefined ? {} : { parent }),
      reason: known.data.reason,
      consistency: known.data.consistency,
      description: clip(more.description, LIMITS.description),
      ...(more["caused-by"] === undefined ? {} : { causedBy: more["caused-by"] }),
      createdAt: known.data.created,
      ...(genesis === undefined ? {} : { genesis }),
      ...(more.sandbox === undefined ? {} : { sandbox: more.sandbox }),
      ...(recovered === undefined ? {} : { recovered }),
      ...(more["ignored-rescues"] === undefined ? {} : { ignoredRescues: more["ignored-rescues"] }),
      ...(hook === undefined ? {} : { hook }),
      ...(more["size-bytes"] === undefined ? {} : { sizeBytes: more["size-bytes"] }),
    },
  };
}

function readGenesis(
  annotations: Readonly<Record<string, string>>,
  platform: Platform | undefined,
): RecordedFacts["genesis"] {
  const image = annotations[BASE_NAME];
  const source = annotations[BASE_DIGEST];
  const isNamed = image !== undefined && image !== "" && image.length <= LIMITS.image;
  if (!isNamed || source === undefined || !isDigest(source)) return undefined;
  return { image, digest: source, ...(platform === undefined ? {} : { platform }) };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}
