import { randomUUID } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Logger } from "pino";
import { AdmissionWebhook } from "./admission-webhook.ts";
import { sendAnswer, sendJson } from "./answer.ts";
import type { Authenticator } from "./authentication.ts";
import { type Authorizer, attemptsToReview } from "./authorization.ts";
import { type Answer, type Call, json, onlyParameters, type Parts, type WorldCall } from "./call.ts";
import { discoveryDocument } from "./discovery.ts";
import { exec } from "./exec.ts";
import { badRequest } from "./failure.ts";
import { readFile, writeFile } from "./files.ts";
import type { InFlightLimit } from "./in-flight.ts";
import { reportFailure, type Subject } from "./report.ts";
import { splitTarget } from "./request-target.ts";
import { askOfRescue, exportRescue, viewRescues } from "./rescues.ts";
import { type Action, type Route, routeOf, type WorldAction, type WorldRoute } from "./routes.ts";
import { sessionView } from "./session.ts";
import { close, snapshot } from "./slow-verb.ts";
import { touch } from "./touch-verb.ts";

/** What the front of the gateway needs to take a request to its handler. */
export interface FrontParts {
  readonly authenticator: Authenticator;
  readonly authorizer: Authorizer;
  readonly webhook: AdmissionWebhook;
  readonly parts: Parts;
  /** All requests of one identity, and those that hold whole bodies in memory. */
  readonly requests: InFlightLimit;
  readonly execs: InFlightLimit;
  readonly logger: Logger;
  /** Aborts when requests under way are to be given up. */
  readonly signal: AbortSignal;
  readonly draining: AbortSignal;
  /** Whether `/readyz` says so. */
  ready(): boolean;
}

type Handler = (call: Call, parts: Parts) => Promise<Answer>;

const handlers: Readonly<Record<Action, Handler>> = {
  async view(call, parts) {
    onlyParameters(call.query, ["fieldSelector", "resourceVersion"]);
    return json(200, sessionView(await parts.reader.get(call.route.sandbox, call.signal)));
  },
  exec,
  readFile,
  writeFile,
  touch,
  snapshot,
  close,
};

const worldHandlers: Readonly<Record<WorldAction, (call: WorldCall, parts: Parts) => Promise<Answer>>> = {
  viewRescues,
  askOfRescue,
  exportRescue,
};

/** Time to authenticate and authorise. */
const ADMISSION_DEADLINE_MS = 15_000;

/** One request from its raw target to its answer: split, authenticate, route, authorise, handle. Never rejects. */
export async function serve(front: FrontParts, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const gone = new AbortController();
  response.once("close", () => {
    if (!response.writableFinished) gone.abort(new DOMException("the client went away", "AbortError"));
  });
  const signal = AbortSignal.any([gone.signal, front.signal]);
  const logger = front.logger.child({ requestId: randomUUID(), method: request.method });
  let route: Route | WorldRoute | undefined;
  try {
    const split = splitTarget(request.url ?? "");
    if (split.kind === "refused") throw badRequest(split.code, split.message);
    const { segments, query } = split;
    if (isHealth(segments)) return answerHealth(front, segments[0], response);
    if (AdmissionWebhook.isAskedBy(segments)) return await front.webhook.answer(request, response, signal);

    const admission = AbortSignal.any([signal, AbortSignal.timeout(ADMISSION_DEADLINE_MS)]);
    const identity = await front.authenticator.authenticate(request, admission);
    using _place = front.requests.enter(identity.user);
    const document = request.method === "GET" ? discoveryDocument(segments) : undefined;
    if (document !== undefined) return sendJson(response, 200, document);

    route = routeOf(request.method ?? "", segments);
    const { resource, verb, subresource, reachesIntoSession, action } = route;
    const attempt = { verb, ...objectOf(route), resource, subresource };
    await front.authorizer.require(
      identity,
      attemptsToReview(attempt, { via: identity.via, reachesIntoSession }),
      admission,
    );
    using _heavy = action === "exec" ? front.execs.enter(identity.user) : undefined;
    const call = { identity, query, request, logger, signal, draining: front.draining };
    await sendAnswer(response, await handle(route, call, front.parts), signal);
    logger.debug({ action, user: identity.user, ...objectOf(route) }, "served");
  } catch (error) {
    reportFailure({ request, response, logger, gone: gone.signal }, error, route && subjectOf(route));
  }
}

const objectOf = (route: Route | WorldRoute) => (route.resource === "worlds" ? route.world : route.sandbox);

const handle = (route: Route | WorldRoute, call: Omit<Call, "route">, parts: Parts): Promise<Answer> =>
  route.resource === "worlds"
    ? worldHandlers[route.action]({ ...call, route }, parts)
    : handlers[route.action]({ ...call, route }, parts);

const subjectOf = (route: Route | WorldRoute): Subject => ({
  action: route.action,
  resource: route.resource,
  ref: objectOf(route),
});

const HEALTH = ["healthz", "livez", "readyz"];

const isHealth = (segments: readonly string[]): boolean => segments.length === 1 && HEALTH.includes(segments[0] ?? "");

/** Plain text and without authentication, as probes expect it. */
function answerHealth(front: FrontParts, name: string | undefined, response: ServerResponse): void {
  const healthy = name !== "readyz" || front.ready();
  const text = healthy ? "ok" : "not ready";
  response.writeHead(healthy ? 200 : 503, { "content-type": "text/plain", "content-length": text.length });
  response.end(text);
}
