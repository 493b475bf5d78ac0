/**
 * Settings of the operator: one YAML file (`--config`), each key overridable by an environment variable:
 * `registry.url` is `AGENTWORLDS_REGISTRY_URL`, `limits.deletionDeadlineSeconds` is
 * `AGENTWORLDS_LIMITS_DELETION_DEADLINE_SECONDS`. Lists are given as JSON. Unknown keys are refused.
 */
import { readFile } from "node:fs/promises";
import { parse as parseYaml, YAMLParseError } from "yaml";
import { z } from "zod";
import { INSTALLATION_ID } from "./installation-traces.ts";
import { wordsOf } from "./reconciler/words-of.ts";
import { isLoopbackName } from "./registry/reference.ts";

const port = (fallback: number) => z.int().min(0).max(65_535).default(fallback);
const seconds = (fallback: number) => z.number().positive().max(86_400).default(fallback);

const registrySchema = z.strictObject({
  url: z
    .url({ protocol: /^https?$/, error: "must be https://host[:port], or http:// on loopback" })
    .refine(isBareOrigin, "must be https://host[:port] and no more: no path, no user")
    .refine(isHttpsOrLoopback, "plain http:// is for loopback only; use https://")
    .describe("Where the operator reaches the registry: `https://host[:port]`, or `http://` on loopback only."),
  pullAs: z
    .string()
    .min(1)
    .optional()
    .describe("`host[:port]` under which container hosts know the same registry. Unset: as in `url`."),
  prefix: z
    .string()
    .regex(/^[a-z0-9]+([._-][a-z0-9]+)*$/)
    .default("worlds")
    .describe("First path component of every World's repository."),
  credentialsSecret: z
    .string()
    .optional()
    .describe("Secret of type `kubernetes.io/dockerconfigjson` in the operator's namespace. Unset: anonymous."),
  caFile: z.string().optional().describe("PEM file of an own CA. Unset: the system's."),
});

const sourcesSchema = z.strictObject({
  allow: z
    .array(z.string().min(1))
    .max(256)
    .optional()
    .describe(
      "Registry hosts that `from.image` and `image` may name. Unset: every public host; and loopback in development.",
    ),
  development: z
    .enum(["Enabled", "Disabled"])
    .default("Disabled")
    .describe("`Enabled` allows registries on loopback as sources, also by plain HTTP."),
  credentialsSecret: z
    .string()
    .optional()
    .describe("Secret of type `kubernetes.io/dockerconfigjson` in the operator's namespace, for source registries."),
});

const gatewaySchema = z.strictObject({
  port: port(8443).describe("Port of the sessions API; 0 takes a free one."),
  address: z.string().default("0.0.0.0").describe("Address to listen on."),
  aggregation: z
    .enum(["Enabled", "Disabled"])
    .default("Enabled")
    .describe("`Enabled` registers the APIService; `Disabled` serves the direct endpoint only."),
  service: z
    .enum(["InCluster", "ExternalName"])
    .default("InCluster")
    .describe(
      "`ExternalName` points APIService and webhook at this machine, for an operator beside the cluster that its API server reaches as `localhost`.",
    ),
  creatorStamp: z
    .enum(["Enabled", "Disabled"])
    .default("Enabled")
    .describe(
      "`Enabled` registers the webhook that stamps creators where the API server does not by itself (below Kubernetes 1.36).",
    ),
  admissionClientCaFile: z
    .string()
    .optional()
    .describe(
      "PEM file of whoever signs the client certificate that kube-apiserver shows webhooks (`--admission-control-config-file`). Unset: it need not show one.",
    ),
});

const leaderSchema = z
  .strictObject({
    leaseDurationSeconds: z
      .int()
      .min(1)
      .max(600)
      .default(15)
      .describe(
        "Others take over after this long without a renewal. Whoever shortens it shortens the next two with it.",
      ),
    renewDeadlineSeconds: seconds(10).describe(
      "The leader ceases when it could not renew for this long. At most 0.8 of `leader.leaseDurationSeconds`, so that it has ceased before another begins.",
    ),
    retryPeriodSeconds: seconds(2).describe(
      "Pause between tries. At most a fifth of `leader.renewDeadlineSeconds`, so that one lost answer does not cost the lease.",
    ),
  })
  .superRefine(({ leaseDurationSeconds, renewDeadlineSeconds, retryPeriodSeconds }, context) => {
    const refuse = (key: string, message: string) => context.addIssue({ code: "custom", path: [key], message });
    const longestRenewal = (leaseDurationSeconds * 8) / 10;
    if (renewDeadlineSeconds > longestRenewal)
      refuse("renewDeadlineSeconds", `must be at most ${longestRenewal}, 0.8 of leader.leaseDurationSeconds`);
    const longestPause = renewDeadlineSeconds / 5;
    if (retryPeriodSeconds > longestPause)
      refuse("retryPeriodSeconds", `must be at most ${longestPause}, a fifth of leader.renewDeadlineSeconds`);
  });

const limitsSchema = z.strictObject({
  deletionDeadlineSeconds: seconds(600).describe(
    "A deletion goes on after this long although the snapshot fails; the stopped container is kept.",
  ),
  rescueAfterSeconds: seconds(600).describe(
    "A session whose end could not be published for this long becomes a rescue: the stopped container is kept for the Runtime's `rescueSeconds`, and the World tries again.",
  ),
  bootDeadlineSeconds: seconds(900).describe(
    "A boot that is not Ready after this long, because its image cannot be pulled, say, lets go of World and slot, and is tried again after a pause of 1 min to 1 h.",
  ),
  workers: z.int().min(1).max(256).default(16).describe("Sandboxes worked on at once, and as many Worlds."),
  drainSeconds: seconds(20).describe("How long an orderly stop waits for passes that run."),
});

const verificationSchema = z.strictObject({
  intervalSeconds: z
    .number()
    .positive()
    .max(30 * 86_400)
    .default(86_400)
    .describe("Every listed version of every World is looked at in the registry once in this time."),
  callsPerSecond: z
    .number()
    .positive()
    .max(1_000)
    .default(20)
    .describe("Most calls to the registry per second that this may take."),
});

export const configSchema = z.strictObject({
  role: z
    .enum(["all", "controller", "gateway"])
    .default("all")
    .describe("What this process does; `--role` overrides it."),
  namespace: z.string().min(1).default("agent-worlds-system").describe("The operator's own namespace."),
  installation: z
    .string()
    .regex(INSTALLATION_ID, "must be 4 to 32 lower-case letters and digits")
    .optional()
    .describe(
      "Id of this installation, part of every World's repository. Unset: as in the Secret `agent-worlds-installation`, generated once. Set it where a cluster is built anew and its Worlds are to be found again; never the same for two clusters at a time.",
    ),
  registry: registrySchema.describe("The installation's registry."),
  sources: sourcesSchema.prefault({}).describe("Where images may come from."),
  gateway: gatewaySchema.prefault({}).describe("The sessions API."),
  leader: leaderSchema.prefault({}).describe("Leader election of the controllers."),
  limits: limitsSchema.prefault({}).describe("Bounds of the installation."),
  verification: verificationSchema.prefault({}).describe("The periodic look at the versions in the registry."),
  metrics: z.strictObject({ port: port(8080).describe("Prometheus endpoint; 0 takes a free one.") }).prefault({}),
  health: z.strictObject({ port: port(8081).describe("`/healthz` and `/readyz`; 0 takes a free one.") }).prefault({}),
  helper: z
    .strictObject({ path: z.string().optional().describe("The helper's binary. Unset: compiled with Go and cached.") })
    .prefault({}),
  log: z
    .strictObject({ level: z.enum(["debug", "info", "warn", "error"]).default("info").describe("Least level logged.") })
    .prefault({}),
});

export type Config = z.infer<typeof configSchema>;

/** The settings cannot be used; the message names every key that is wrong. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
}

const PREFIX = "AGENTWORLDS_";

/** Reads the file (if any), lays the environment over it and checks the whole. */
export async function loadConfig(source: {
  readonly file: string | undefined;
  readonly environment: Readonly<Record<string, string | undefined>>;
}): Promise<Config> {
  const fromFile = source.file === undefined ? {} : await readYaml(source.file);
  return parseConfig(overlay(fromFile, source.environment));
}

export function parseConfig(value: unknown): Config {
  // What is missing of a section that is missing is named, not the section.
  const stated = isRecord(value) ? { ...value, registry: value["registry"] ?? {} } : value;
  const parsed = configSchema.safeParse(stated);
  if (parsed.success) return parsed.data;
  const lines = parsed.error.issues.flatMap((issue) => explainIssue(issue, stated));
  throw new ConfigError(
    ["the settings cannot be used (docs/configuration.md has all of them):", ...lines.map((line) => `- ${line}`)].join(
      "\n",
    ),
  );
}

/** A setting by both of its places: the key of the YAML file and the environment variable. */
export const settingName = (path: readonly string[]): string => `${path.join(".")} (${variableName(path)})`;

/** Values are not repeated: one may hold a credential. */
function explainIssue(issue: z.core.$ZodIssue, document: unknown): string[] {
  const path = issue.path.map(String);
  if (issue.code === "unrecognized_keys") {
    return issue.keys.map((key) => `${[...path, key].join(".")}: there is no such setting`);
  }
  const setting = settingsOf(configSchema).find((one) => one.path.every((key, index) => path[index] === key));
  if (!setting) return [`${path.join(".") || "the file"}: ${issue.message}`];
  const where = settingName(setting.path);
  // A default can be wrong beside what was stated.
  if (issue.code === "custom" || valueAt(document, setting.path) !== undefined) return [`${where}: ${issue.message}`];
  return [`${where} is missing: ${setting.description ?? issue.message}`];
}

function valueAt(document: unknown, path: readonly string[]): unknown {
  return path.reduce((value: unknown, key) => (isRecord(value) ? value[key] : undefined), document);
}

async function readYaml(file: string): Promise<unknown> {
  try {
    return parseYaml(await readFile(file, "utf8")) ?? {};
  } catch (error) {
    if (error instanceof YAMLParseError) throw new ConfigError(`${file} is not YAML: ${error.message}`);
    throw new ConfigError(`${file} cannot be read: ${wordsOf(error)}`);
  }
}

/** The document with every `AGENTWORLDS_…` variable laid over the key it names; a variable that names no key is refused. */
export function overlay(document: unknown, environment: Readonly<Record<string, string | undefined>>): unknown {
  const settings = new Map(settingsOf(configSchema).map((setting) => [variableName(setting.path), setting]));
  const result: unknown = structuredClone(document);
  for (const [name, raw] of Object.entries(environment)) {
    if (!name.startsWith(PREFIX) || raw === undefined || OTHER_VARIABLES.has(name)) continue;
    const setting = settings.get(name);
    if (!setting) {
      throw new ConfigError(`environment variable ${name} names no setting; docs/configuration.md has all of them`);
    }
    setAt(result, setting.path, valueFor(setting.schema, raw));
  }
  return result;
}

/** Read by other programs of the product. */
const OTHER_VARIABLES: ReadonlySet<string> = new Set(["AGENTWORLDS_PARTS"]);

/** The environment variable that overrides the setting at `path`. */
export const variableName = (path: readonly string[]): string =>
  PREFIX + path.map((key) => key.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase()).join("_");

interface Setting {
  readonly path: readonly string[];
  readonly schema: z.ZodType;
  readonly description: string | undefined;
}

/** All leaves of the schema. */
function settingsOf(schema: z.ZodType, path: readonly string[] = []): Setting[] {
  const inner = unwrapped(schema);
  if (!(inner instanceof z.ZodObject)) {
    return [{ path, schema: inner, description: schema.description ?? inner.description }];
  }
  return Object.entries(inner.shape).flatMap(([key, child]) =>
    child instanceof z.ZodType ? settingsOf(child, [...path, key]) : [],
  );
}

/** What is no URL at all is said by another rule. */
function isBareOrigin(text: string): boolean {
  if (!URL.canParse(text)) return true;
  const { pathname, search, hash, username, password } = new URL(text);
  return pathname === "/" && [search, hash, username, password].every((part) => part === "");
}

function isHttpsOrLoopback(text: string): boolean {
  if (!URL.canParse(text)) return true;
  const { protocol, hostname } = new URL(text);
  return protocol === "https:" || isLoopbackName(hostname);
}

function unwrapped(schema: z.ZodType): z.ZodType {
  if (schema instanceof z.ZodDefault || schema instanceof z.ZodPrefault || schema instanceof z.ZodOptional) {
    const inner = schema.unwrap();
    return inner instanceof z.ZodType ? unwrapped(inner) : schema;
  }
  return schema;
}

function setAt(target: unknown, [key, ...rest]: readonly string[], value: unknown): void {
  if (key === undefined || !isRecord(target)) throw new ConfigError("the configuration file must hold a mapping");
  if (rest.length === 0) {
    target[key] = value;
    return;
  }
  target[key] ??= {};
  setAt(target[key], rest, value);
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Numbers and JSON lists where the setting is one, everything else as the text it is: a namespace may be called 2026. */
function valueFor(schema: z.ZodType, raw: string): unknown {
  if (schema instanceof z.ZodNumber) return /^-?\d+(\.\d+)?$/.test(raw) ? Number(raw) : raw;
  if (!(schema instanceof z.ZodArray)) return raw;
  try {
    return JSON.parse(raw);
  } catch (error) {
    if (error instanceof SyntaxError) return raw;
    throw error;
  }
}
