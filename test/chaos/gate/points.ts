/**
 * The name of an effect, derived from the request that carries it out: every request that is not a read has one, so that a
 * new effect cannot lack one. Objects are left out of the name, and so is what only rides along in a write: a name is a kind
 * of effect.
 */

/** A request as it is about to leave the process. */
export interface OutgoingRequest {
  readonly method: string;
  /** Target with query. */
  readonly target: string;
  readonly body: string | undefined;
}

/** A moment at which the operator can die. */
export interface KillPoint {
  readonly name: string;
  readonly moment: "before" | "after";
}

export const keyOf = ({ name, moment }: KillPoint): string => `${moment} ${name}`;

/** The effect that the request is; undefined when it changes nothing. */
export function effectOf({ method, target, body }: OutgoingRequest): string | undefined {
  if (method === "GET" || method === "HEAD" || method === "OPTIONS") return undefined;
  const [path = ""] = target.split("?");
  const query = new URLSearchParams(target.slice(path.length + 1));
  if (/^\/apis?\//.test(path)) return kubeEffect(method, path, body);
  if (path.startsWith("/v2/")) return registryEffect(method, path, query);
  if (/^\/v\d+\.\d+\//.test(path)) return engineEffect(method, path.replace(/^\/v\d+\.\d+/, ""), query);
  return `other ${method} ${path}`;
}

/**
 * Events tell; nothing reads them again. Reviews ask a question by POST. Neither is a point: a death there is a death between
 * two points.
 */
const NO_EFFECTS = /^(events|\w+reviews)$/;

function kubeEffect(method: string, path: string, body: string | undefined): string | undefined {
  const words = path.split("/").slice(path.startsWith("/apis/") ? 4 : 3);
  // The namespace's own resource has no more words behind its name.
  const [resource = "", , subresource] = words[0] === "namespaces" && words.length > 2 ? words.slice(2) : words;
  if (NO_EFFECTS.test(resource)) return undefined;
  const subject = method === "PATCH" || method === "PUT" ? subjectOf(body) : "";
  return `kube ${method} ${resource}${subresource === undefined ? "" : `/${subresource}`}${subject}`;
}

function registryEffect(method: string, path: string, query: URLSearchParams): string {
  const manifest = /\/manifests\/([^/]+)$/.exec(path)?.[1];
  if (manifest !== undefined) {
    const reference = manifest.startsWith("sha256:") ? "by digest" : manifest.replace(/\d+$/, "<n>").split("-")[0];
    return `registry ${method} manifest ${reference}`;
  }
  if (/\/blobs\/uploads\//.test(path)) return `registry ${method} upload${query.has("mount") ? " by mount" : ""}`;
  return `registry ${method} blob`;
}

function engineEffect(method: string, path: string, query: URLSearchParams): string | undefined {
  const image = /^\/images\/(.+?)(\/(?:push|tag))?$/.exec(path);
  if (image !== null && image[1] !== "create") return `engine ${method} /images/*${image[2] ?? ""}`;
  if (path === "/images/create") return `engine pull${query.has("fromSrc") ? " by import" : ""}`;
  const [, collection = "", id, verb] = path.split("/");
  // Waits until something else is done.
  if (verb === "wait") return undefined;
  const collective = id === undefined || id === "create" || id === "load";
  return `engine ${method} /${collection}${id === undefined ? "" : collective ? `/${id}` : "/*"}${verb === undefined ? "" : `/${verb}`}`;
}

/** Written by the summary at the end of a pass, or along with something else: whether they differ is a matter of timing. */
const RIDING: ReadonlySet<string> = new Set([
  "base",
  "boot",
  "bootedFrom",
  "conditions",
  "expiresAt",
  "lastActivityAt",
  "lastEnding",
  "lastSnapshot",
  "lifetimeEndsAt",
  "observedGeneration",
  "observedMode",
  "phase",
  "requests",
  "world",
]);

/** ` operation:Frozen`, ` -pending head versions`, ` summary`: which fields a patch sets or (-) removes. */
function subjectOf(body: string | undefined): string {
  const patch = parsed(body);
  const status = recordAt(patch, "status");
  if (status !== undefined) {
    const all = Object.entries(status);
    const leading = all.filter(([field]) => !RIDING.has(field));
    const named = leading.length > 0 ? leading : all.filter(([field]) => field === "requests" || field === "expiresAt");
    return ` ${
      named.length === 0
        ? "summary"
        : named
            .map(([field, value]) => fieldOf(field, value))
            .sort()
            .join(" ")
    }`;
  }
  const finalizers = recordAt(patch, "metadata")?.["finalizers"];
  if (finalizers !== undefined)
    return Array.isArray(finalizers) && finalizers.length > 0 ? " finalizers" : " -finalizers";
  const fields = Object.keys(patch ?? {}).filter((field) => !/^(apiVersion|kind|metadata)$/.test(field));
  return fields.length === 0 ? "" : ` ${fields.sort().join(" ")}`;
}

function fieldOf(field: string, value: unknown): string {
  if (value === null) return `-${field}`;
  if (!isRecord(value)) return field;
  if (typeof value["stage"] === "string") return `${field}:${value["stage"]}`;
  const isNew = "id" in value || "uid" in value || "operation" in value;
  // A merge patch that changes members of what is there says which step that is.
  const members = Object.keys(value).filter((member) => value[member] !== null);
  return isNew || members.length === 0 ? field : `${field}:${members.sort()[0]}`;
}

function parsed(body: string | undefined): Readonly<Record<string, unknown>> | undefined {
  if (body === undefined) return undefined;
  try {
    const value: unknown = JSON.parse(body);
    return isRecord(value) ? value : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

function recordAt(value: unknown, field: string): Readonly<Record<string, unknown>> | undefined {
  const found = isRecord(value) ? value[field] : undefined;
  return isRecord(found) ? found : undefined;
}

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
