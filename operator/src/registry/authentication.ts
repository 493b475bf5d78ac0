import { z } from "zod";
import type { Clock } from "../reconciler/clock.ts";
import { parseChallenges } from "./challenge.ts";
import type { RegistryLogin } from "./contract.ts";
import { RegistryError } from "./errors.ts";

/** What a call needs, in the words of the token protocol: rights in a repository, or to list all repositories. */
export type Scope = RepositoryScope | { readonly catalog: "*" };

export interface RepositoryScope {
  readonly repository: string;
  readonly actions: readonly ("pull" | "push" | "delete")[];
}

/** Fetches a token: one GET without redirects, under the address policy. Returns the body of a 200, else throws. */
export type FetchToken = (url: URL, authorization: string | undefined, signal: AbortSignal) => Promise<Uint8Array>;

export interface AuthenticatorOptions {
  readonly clock: Clock;
  readonly login: RegistryLogin | undefined;
  readonly fetchToken: FetchToken;
}

/** The token specification: a token without `expires_in` lives this long. */
const DEFAULT_TOKEN_SECONDS = 60;
/** A token is not used in its last seconds, so that it does not expire on the way; at most a quarter of its life. */
const EXPIRY_MARGIN_MS = 10_000;

const tokenSchema = z
  .object({
    token: z.string().min(1).optional(),
    access_token: z.string().min(1).optional(),
    expires_in: z.number().nonnegative().optional(),
  })
  // `token` and `access_token` are the same thing; OAuth2 servers send only the second.
  .transform((answer) => ({ token: answer.token ?? answer.access_token, seconds: answer.expires_in }));

interface CachedToken {
  readonly token: string;
  readonly usableUntil: number;
}

type Scheme = { kind: "unknown" } | { kind: "basic" } | { kind: "bearer"; realm: URL; service: string | undefined };

/**
 * The Authorization of one registry: learned from its first 401, then sent unasked until a token nears its end. One per
 * client; it knows the registry only, so that its answers cannot be meant for another host.
 */
export class Authenticator {
  readonly #options: AuthenticatorOptions;
  #scheme: Scheme = { kind: "unknown" };
  readonly #tokens = new Map<string, CachedToken>();
  /** What a registry asked for beyond our own scopes, by key. */
  readonly #demanded = new Map<string, readonly string[]>();

  constructor(options: AuthenticatorOptions) {
    this.#options = options;
  }

  /** The header for a call that needs these scopes; undefined while nothing is known to be needed. */
  async authorize(scopes: readonly Scope[], signal: AbortSignal): Promise<string | undefined> {
    if (this.#scheme.kind === "unknown") return undefined;
    if (this.#scheme.kind === "basic") return basic(this.#options.login);
    const key = scopeKey(scopes);
    const cached = this.#tokens.get(key);
    const token =
      cached !== undefined && this.#options.clock.now() < cached.usableUntil
        ? cached
        : await this.#renew(this.#scheme, scopes, signal);
    return `Bearer ${token.token}`;
  }

  /**
   * Takes in a 401. Afterwards `authorize` gives a fresh answer. Throws `Unauthorized` when there is nothing to try:
   * no challenge we know, or a login is wanted and none is configured.
   */
  learn(headers: readonly string[], scopes: readonly Scope[]): void {
    const challenges = parseChallenges(headers);
    const bearer = challenges.find((challenge) => challenge.scheme === "bearer");
    if (bearer !== undefined) {
      const realm = bearer.parameters.get("realm") ?? "";
      if (!URL.canParse(realm)) throw new RegistryError("Malformed", "the registry's token realm is not a URL");
      this.#scheme = { kind: "bearer", realm: new URL(realm), service: bearer.parameters.get("service") };
      const key = scopeKey(scopes);
      this.#tokens.delete(key);
      const demanded = bearer.parameters.get("scope")?.split(" ").filter(Boolean) ?? [];
      if (unite([...scopes.map(formatScope), ...demanded]).join(" ") !== key) this.#demanded.set(key, demanded);
      return;
    }
    if (!challenges.some((challenge) => challenge.scheme === "basic")) {
      throw new RegistryError("Unauthorized", "the registry asks for a kind of authentication we do not have", {
        status: 401,
      });
    }
    if (this.#options.login === undefined) {
      throw new RegistryError("Unauthorized", "the registry wants a login and none is configured", { status: 401 });
    }
    this.#scheme = { kind: "basic" };
  }

  async #renew(
    scheme: Scheme & { kind: "bearer" },
    scopes: readonly Scope[],
    signal: AbortSignal,
  ): Promise<CachedToken> {
    const key = scopeKey(scopes);
    const url = new URL(scheme.realm);
    if (scheme.service !== undefined) url.searchParams.set("service", scheme.service);
    for (const scope of unite([...scopes.map(formatScope), ...(this.#demanded.get(key) ?? [])])) {
      url.searchParams.append("scope", scope);
    }
    // Counted from before the request: the server's clock started no earlier.
    const askedAt = this.#options.clock.now();
    const login = this.#options.login;
    const answer = parseToken(
      await this.#options.fetchToken(url, login === undefined ? undefined : basic(login), signal),
    );
    const life = answer.seconds * 1000;
    const token = { token: answer.token, usableUntil: askedAt + life - Math.min(EXPIRY_MARGIN_MS, life / 4) };
    for (const [other, { usableUntil }] of this.#tokens) if (usableUntil <= askedAt) this.#tokens.delete(other);
    this.#tokens.set(key, token);
    return token;
  }
}

function parseToken(body: Uint8Array): { token: string; seconds: number } {
  let json: unknown;
  try {
    json = JSON.parse(Buffer.from(body).toString("utf8"));
  } catch {
    // No cause: JSON.parse quotes its input, which may hold the token.
    throw new RegistryError("Malformed", "the token server's answer is not JSON");
  }
  const parsed = tokenSchema.safeParse(json);
  if (!parsed.success || parsed.data.token === undefined) {
    throw new RegistryError("Malformed", "the token server's answer holds no token");
  }
  return { token: parsed.data.token, seconds: parsed.data.seconds ?? DEFAULT_TOKEN_SECONDS };
}

function basic(login: RegistryLogin | undefined): string | undefined {
  if (login === undefined) return undefined;
  return `Basic ${Buffer.from(`${login.username}:${login.password}`, "utf8").toString("base64")}`;
}

const formatScope = (scope: Scope): string =>
  "catalog" in scope
    ? `registry:catalog:${scope.catalog}`
    : `repository:${scope.repository}:${scope.actions.join(",")}`;
const scopeKey = (scopes: readonly Scope[]): string => unite(scopes.map(formatScope)).join(" ");

/** One scope per resource with all actions anybody named, sorted, so that equal needs are equal text. */
export function unite(scopes: readonly string[]): string[] {
  const actions = new Map<string, Set<string>>();
  for (const scope of scopes) {
    const colon = scope.lastIndexOf(":");
    if (colon <= 0) continue;
    const resource = scope.slice(0, colon);
    const known = actions.get(resource) ?? new Set<string>();
    for (const action of scope.slice(colon + 1).split(",")) if (action !== "") known.add(action);
    actions.set(resource, known);
  }
  return [...actions].map(([resource, names]) => `${resource}:${[...names].sort().join(",")}`).sort();
}
