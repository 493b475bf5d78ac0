import { createHash, X509Certificate } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { TLSSocket } from "node:tls";
import * as z from "zod";
import type { KubeClient } from "../kube/contract.ts";
import type { Clock } from "../reconciler/clock.ts";
import { BoundedCache } from "./bounded-cache.ts";
import { Failure } from "./failure.ts";
import type { Identity } from "./identity.ts";
import { forwardedIdentity, maySpeakForOthers, type RequestHeaderTrust } from "./request-header.ts";

/** How long a reviewed token is believed. A deleted ServiceAccount's token works at most this much longer. */
const TOKEN_TTL_MS = 10_000;
const REVIEW_DEADLINE_MS = 10_000;

const reviewSchema = z.object({
  status: z
    .object({
      authenticated: z.boolean().optional(),
      user: z
        .object({
          username: z.string().optional(),
          uid: z.string().optional(),
          groups: z.array(z.string()).nullish(),
          extra: z.record(z.string(), z.array(z.string())).nullish(),
        })
        .optional(),
    })
    .optional(),
});

/** Says who makes a request, or refuses it with a 401. */
export class Authenticator {
  readonly #kube: KubeClient;
  readonly #clock: Clock;
  readonly #tokens: BoundedCache<Identity>;
  readonly #trust: () => RequestHeaderTrust | undefined;

  /** `trust` is asked at each request: the aggregation layer's CA rotates while the gateway runs. */
  constructor(options: { kube: KubeClient; clock: Clock; trust: () => RequestHeaderTrust | undefined }) {
    this.#kube = options.kube;
    this.#clock = options.clock;
    this.#trust = options.trust;
    this.#tokens = new BoundedCache(options.clock, { ttlMs: TOKEN_TTL_MS, maxEntries: 2_048 });
  }

  /** Throws `Failure` 401, and 503 when the API server cannot be asked. */
  async authenticate(request: IncomingMessage, signal: AbortSignal): Promise<Identity> {
    const forwarded = this.#forwarded(request);
    if (forwarded !== undefined) return forwarded;
    const token = bearerToken(request.headers.authorization);
    if (token === undefined) throw unauthenticated("the request carries no bearer token");
    return this.#review(token, signal);
  }

  #forwarded(request: IncomingMessage): Identity | undefined {
    const trust = this.#trust();
    const { socket } = request;
    if (trust === undefined || !(socket instanceof TLSSocket)) return undefined;
    const peer = socket.getPeerX509Certificate();
    if (peer === undefined) return undefined;
    const speaks = maySpeakForOthers(new X509Certificate(peer.raw), {
      trust,
      verified: socket.authorized,
      now: this.#clock.now(),
    });
    // A certificate of somebody else is no identity here: such a client goes on to its bearer token.
    return speaks ? forwardedIdentity(request.rawHeaders, trust) : undefined;
  }

  async #review(token: string, signal: AbortSignal): Promise<Identity> {
    // The cache holds a digest, so that a heap dump holds no token.
    const key = createHash("sha256").update(token).digest("base64");
    const known = this.#tokens.get(key);
    if (known !== undefined) return known;
    const answer = await this.#kube.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {
      signal,
      deadlineMs: REVIEW_DEADLINE_MS,
      body: { apiVersion: "authentication.k8s.io/v1", kind: "TokenReview", spec: { token } },
    });
    const status = reviewSchema.parse(answer).status;
    const user = status?.user;
    if (status?.authenticated !== true || user?.username === undefined || user.username === "") {
      throw unauthenticated("the bearer token is not valid in this cluster");
    }
    const identity: Identity = {
      user: user.username,
      uid: user.uid,
      groups: user.groups ?? [],
      extra: user.extra ?? {},
      via: "Direct",
    };
    this.#tokens.set(key, identity);
    return identity;
  }
}

/** The token of an `Authorization: Bearer` header. */
function bearerToken(header: string | undefined): string | undefined {
  return /^Bearer +([^\s]+) *$/i.exec(header ?? "")?.[1];
}

const unauthenticated = (message: string): Failure =>
  new Failure({
    status: 401,
    code: "Unauthenticated",
    message,
    remediation: "call through kube-apiserver with a kubeconfig, or send Authorization: Bearer <token> of this cluster",
  });
