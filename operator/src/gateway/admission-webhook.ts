import { X509Certificate } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { TLSSocket } from "node:tls";
import type { Clock } from "../reconciler/clock.ts";
import { reviewAnswer, reviewSchema } from "./admission-review.ts";
import { sendJson } from "./answer.ts";
import { readJson } from "./body.ts";
import { Failure } from "./failure.ts";
import { InFlightLimit } from "./in-flight.ts";
import { isIssuedBy } from "./request-header.ts";

/** Where kube-apiserver sends its reviews. */
export const WEBHOOK_PATH = "/admission/created-by";
/** kube-apiserver waits so long for an answer; nothing here waits for anything but the body. */
export const WEBHOOK_TIMEOUT_SECONDS = 5;
/** kube-apiserver takes requests of at most 3 MiB, and its JSON writes `<` as six characters where a client wrote one. */
const MAX_BYTES = 4 * 1024 * 1024;
/** Reviews of one address under way at once: they hold their bodies in memory. */
const MAX_REVIEWS = 32;

/**
 * Answers admission reviews. kube-apiserver calls webhooks without any credential unless it is configured to hold one, so
 * an unknown caller is answered too: the answer is a function of what it sent, and means something only to the API server
 * that asked. With `clientCa`, only callers with a certificate of that authority are answered.
 */
export class AdmissionWebhook {
  readonly #clock: Clock;
  readonly #clientCa: string | undefined;
  readonly #reviews = new InFlightLimit(MAX_REVIEWS, "admission reviews of this address");

  constructor(options: { clock: Clock; clientCa: string | undefined }) {
    this.#clock = options.clock;
    this.#clientCa = options.clientCa;
  }

  /** Whether this is a request for the webhook. */
  static isAskedBy(segments: readonly string[]): boolean {
    return `/${segments.join("/")}` === WEBHOOK_PATH;
  }

  /** Throws `Failure`, which kube-apiserver takes for a failed call: it then refuses the creation. */
  async answer(request: IncomingMessage, response: ServerResponse, signal: AbortSignal): Promise<void> {
    if (request.method !== "POST") {
      throw new Failure({ status: 405, code: "MethodNotAllowed", message: "reviews are sent by POST" });
    }
    this.#requireKnown(request);
    using _place = this.#reviews.enter(request.socket.remoteAddress ?? "");
    const patience = AbortSignal.any([signal, AbortSignal.timeout(WEBHOOK_TIMEOUT_SECONDS * 1_000)]);
    const review = await readJson(request, reviewSchema, { maxBytes: MAX_BYTES, signal: patience });
    sendJson(response, 200, reviewAnswer(review.request));
  }

  #requireKnown({ socket }: IncomingMessage): void {
    if (this.#clientCa === undefined) return;
    const peer = socket instanceof TLSSocket ? socket.getPeerX509Certificate() : undefined;
    const isKnown =
      socket instanceof TLSSocket &&
      peer !== undefined &&
      isIssuedBy(new X509Certificate(peer.raw), {
        bundle: this.#clientCa,
        verified: socket.authorized,
        now: this.#clock.now(),
      });
    if (isKnown) return;
    throw new Failure({
      status: 401,
      code: "Unauthenticated",
      message: "admission reviews are answered to the API server's client certificate only",
      remediation: "give kube-apiserver one by --admission-control-config-file, or unset gateway.admissionClientCaFile",
    });
  }
}
