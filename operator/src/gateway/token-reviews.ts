import { createHash } from "node:crypto";
import * as z from "zod";
import type { KubeClient } from "../kube/contract.ts";
import type { Clock } from "../reconciler/clock.ts";
import { startDeadline, untilAborted } from "../reconciler/deadline.ts";
import { BoundedCache } from "./bounded-cache.ts";
import { Failure } from "./failure.ts";
import type { Identity } from "./identity.ts";
import { InFlightLimit } from "./in-flight.ts";
import { Line } from "./line.ts";

/** How long a reviewed token is believed. A deleted ServiceAccount's token works at most this much longer. */
const TOKEN_TTL_MS = 10_000;
/** How long a refused one is not asked about again: whoever repeats it costs the API server nothing. */
const REFUSED_TTL_MS = 2_000;
/** Limit of a review, the wait for its turn included. */
const REVIEW_DEADLINE_MS = 10_000;
/**
 * Reviews at the API server at one time, whoever sends the tokens: half of the connections that the process has to it, so that
 * the other half is the controllers' and the authenticated users'.
 */
const REVIEWS_AT_ONCE = 4;
/** Tokens of one address that wait for a review: many clients may stand behind one, and nobody knows who they are yet. */
const MAX_REVIEWS_PER_ADDRESS = 32;

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

/**
 * Asks the API server whose a bearer token is. Anybody may send any, so the work that they cause is bounded: a token is asked
 * about once at a time, each address has so many places, and all of them together take no more than half of the connections.
 */
export class TokenReviews {
  readonly #kube: KubeClient;
  readonly #clock: Clock;
  readonly #signal: AbortSignal;
  // The caches hold digests, so that a heap dump holds no token. Two, so that refused ones never push out valid ones.
  readonly #valid: BoundedCache<Identity>;
  readonly #refused: BoundedCache<true>;
  readonly #underWay = new Map<string, Promise<Identity | undefined>>();
  readonly #places = new InFlightLimit(MAX_REVIEWS_PER_ADDRESS, "bearer tokens of this address");
  readonly #line = new Line(REVIEWS_AT_ONCE);

  /** `signal`: gives up every review. */
  constructor(options: { kube: KubeClient; clock: Clock; signal: AbortSignal }) {
    this.#kube = options.kube;
    this.#clock = options.clock;
    this.#signal = options.signal;
    this.#valid = new BoundedCache(options.clock, { ttlMs: TOKEN_TTL_MS, maxEntries: 2_048 });
    this.#refused = new BoundedCache(options.clock, { ttlMs: REFUSED_TTL_MS, maxEntries: 2_048 });
  }

  /** `undefined`: the token is not valid here. Throws `Failure` 429 when the address has too many under way. */
  async identityOf(token: string, from: { address: string; signal: AbortSignal }): Promise<Identity | undefined> {
    const key = createHash("sha256").update(token).digest("base64");
    const known = this.#valid.get(key);
    if (known !== undefined) return known;
    if (this.#refused.get(key)) return undefined;
    // Shared, so it goes on when the one who caused it goes away.
    return await untilAborted(this.#underWay.get(key) ?? this.#begin(key, token, from.address), from.signal);
  }

  #begin(key: string, token: string, address: string): Promise<Identity | undefined> {
    const verdict = this.#ask(token, address)
      .then((identity) => {
        if (identity === undefined) this.#refused.set(key, true);
        else this.#valid.set(key, identity);
        return identity;
      })
      .finally(() => this.#underWay.delete(key));
    this.#underWay.set(key, verdict);
    return verdict;
  }

  async #ask(token: string, address: string): Promise<Identity | undefined> {
    using _place = this.#places.enter(address);
    using deadline = startDeadline({
      clock: this.#clock,
      milliseconds: REVIEW_DEADLINE_MS,
      parent: this.#signal,
      reason: notReviewed(),
    });
    using _turn = await this.#line.enter(deadline.signal);
    return await this.#review(token, deadline.signal);
  }

  async #review(token: string, signal: AbortSignal): Promise<Identity | undefined> {
    const answer = await this.#kube.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {
      signal,
      body: { apiVersion: "authentication.k8s.io/v1", kind: "TokenReview", spec: { token } },
    });
    const status = reviewSchema.parse(answer).status;
    const user = status?.user;
    if (status?.authenticated !== true || user?.username === undefined || user.username === "") return undefined;
    return {
      user: user.username,
      uid: user.uid,
      groups: user.groups ?? [],
      extra: user.extra ?? {},
      via: "Direct",
    };
  }
}

const notReviewed = (): Failure =>
  new Failure({
    status: 503,
    code: "ApiServerUnreachable",
    message: `the API server did not say within ${REVIEW_DEADLINE_MS / 1_000} s whose the bearer token is`,
    remediation: "try again",
    retryAfterSeconds: 2,
  });
