import { X509Certificate } from "node:crypto";
import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { TLSSocket } from "node:tls";
import type { Clock } from "../reconciler/clock.ts";
import { badRequest, Failure } from "./failure.ts";
import type { Identity } from "./identity.ts";
import { forwardedIdentity, maySpeakForOthers, type RequestHeaderTrust } from "./request-header.ts";
import type { TokenReviews } from "./token-reviews.ts";

/** Says who makes a request, or refuses it with a 401. */
export class Authenticator {
  readonly #reviews: TokenReviews;
  readonly #clock: Clock;
  readonly #trust: () => RequestHeaderTrust | undefined;

  /** `trust` is asked at each request: the aggregation layer's CA rotates while the gateway runs. */
  constructor(options: { reviews: TokenReviews; clock: Clock; trust: () => RequestHeaderTrust | undefined }) {
    this.#reviews = options.reviews;
    this.#clock = options.clock;
    this.#trust = options.trust;
  }

  /**
   * Throws `Failure` 401; 400 for a wish to be somebody else, which kube-apiserver grants before it forwards and nobody else
   * does; 429 and 503 when the API server cannot be asked now.
   */
  async authenticate(request: IncomingMessage, signal: AbortSignal): Promise<Identity> {
    const forwarded = this.#forwarded(request);
    if (forwarded !== undefined) return forwarded;
    refuseImpersonation(request.headers);
    const token = bearerToken(request.headers.authorization);
    if (token === undefined) throw unauthenticated("the request carries no bearer token");
    const address = request.socket.remoteAddress ?? "";
    const identity = await this.#reviews.identityOf(token, { address, signal });
    if (identity === undefined) throw unauthenticated("the bearer token is not valid in this cluster");
    return identity;
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
}

/** Left unread they would make whoever wants to do less than they may do all of it. */
function refuseImpersonation(headers: IncomingHttpHeaders): void {
  const header = Object.keys(headers).find((name) => name.startsWith("impersonate-"));
  if (header === undefined) return;
  throw badRequest(
    "ImpersonationNotSupported",
    `the header ${properName(header)} is not honoured at a gateway's own address`,
    "call through kube-apiserver, which decides who may impersonate whom",
  );
}

/** `impersonate-user` as it is written. */
const properName = (header: string): string => header.replace(/(^|-)[a-z]/g, (letter) => letter.toUpperCase());

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
