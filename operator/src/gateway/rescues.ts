/** Rescues of a World for people: what is kept, and what they want done with it. The leading controller does it. */
import { randomUUID } from "node:crypto";
import {
  appendRequest,
  clip,
  LIMITS,
  type Sandbox,
  type World,
  type WorldRequest,
  type WorldRequestResult,
  type WorldRescue,
  type WorldVerb,
} from "@agentworlds/crds";
import * as z from "zod";
import { ownCompute } from "../runtime/open-boot.ts";
import { isOfItsSession } from "../runtime/rescues.ts";
import { isoTime } from "./activity.ts";
import { readJson } from "./body.ts";
import { type Answer, json, onlyParameters, type Parts, type WorldCall } from "./call.ts";
import { GROUP_VERSION } from "./discovery.ts";
import { badRequest, Failure } from "./failure.ts";
import { idSchema } from "./slow-verb.ts";
import { stallGuard, watched } from "./stall-guard.ts";
import type { Decision } from "./status-swap.ts";
import { untilAnswered } from "./until-answered.ts";
import type { WorldWrite } from "./world-store.ts";

const VERBS: Readonly<Record<"Retry" | "Export" | "Discard", WorldVerb>> = {
  Retry: "RetryRescue",
  Export: "ExportRescue",
  Discard: "DiscardRescue",
};

const askSchema = z.strictObject({
  id: idSchema.optional(),
  verb: z.enum(["Retry", "Export", "Discard"]),
  operation: z.string().min(1).max(64),
});

const BODY = 65_536;

/** GET rescues: what is kept, and what was given up. */
export async function viewRescues(call: WorldCall, parts: Parts): Promise<Answer> {
  onlyParameters(call.query, []);
  const { metadata, status } = await parts.worlds.kind.get(call.route.world, call.signal);
  return json(200, {
    kind: "RescueList",
    apiVersion: GROUP_VERSION,
    metadata: { name: metadata.name, namespace: metadata.namespace, uid: metadata.uid },
    rescues: status.rescues ?? [],
    lostWork: status.lostWork ?? [],
  });
}

/** POST rescues: retry, export or discard one, named by its operation. */
export async function askOfRescue(call: WorldCall, parts: Parts): Promise<Answer> {
  onlyParameters(call.query, []);
  const body = await readJson(call.request, askSchema, { maxBytes: BODY, signal: call.signal });
  const request: WorldRequest = {
    id: body.id ?? randomUUID(),
    verb: VERBS[body.verb],
    parameters: { operation: body.operation },
    user: clip(call.identity.user, LIMITS.user),
    at: isoTime(parts.clock.now()),
  };
  const { kind, writer } = parts.worlds;
  const ref = call.route.world;
  const { object } = await writer.update({ ref, decide: (world) => decide(world, request), signal: call.signal });
  const answer = await untilAnswered(call, {
    kind,
    ref,
    from: object,
    clock: parts.clock,
    longPollMs: parts.limits.longPollMs,
    answerIn: (world) => answerIn(world, request),
  });
  return answer ?? json(202, { id: request.id, done: false });
}

/** A repeated id asks for nothing new. What cannot be, or can be no more, is the controller's to say. */
function decide({ metadata, status }: World, request: WorldRequest): Decision<WorldWrite, void> {
  const appended = appendRequest(status.requests ?? [], request);
  switch (appended.kind) {
    case "known":
      return { result: undefined };
    case "conflict":
      throw new Failure({
        status: 409,
        code: "IdReused",
        message: `the id ${request.id} was used for ${appended.request.verb} of ${appended.request.parameters.operation}`,
        remediation: "use a new id for each thing you ask for",
      });
    case "full":
      throw new Failure({
        status: 429,
        code: "TooManyRequests",
        message: `World ${metadata.name} has as many unanswered requests as it can hold`,
        remediation: "wait until some are answered",
        retryAfterSeconds: 5,
      });
    case "append":
      return { write: { requests: appended.requests }, result: undefined };
  }
}

function answerIn({ status }: World, { id }: WorldRequest): Answer | undefined {
  const found = status.requests?.find((request) => request.id === id);
  return found?.result && done(id, found.result);
}

function done(id: string, result: WorldRequestResult): Answer {
  if (result.outcome === "Succeeded") return json(200, { id, done: true, ...result });
  const isRefused = result.outcome === "Refused";
  throw new Failure({
    status: result.code === "NoSuchRescue" ? 404 : isRefused ? 409 : 500,
    code: result.code ?? result.outcome,
    message: result.message ?? "it was not done",
    remediation: isRefused
      ? "a repetition would be refused too: list the World's rescues"
      : "see what stands in the way, then ask again with another id",
  });
}

/** GET proxy/rescues/<operation>.tar: the container's whole filesystem, for when the registry is what does not work. */
export async function exportRescue(call: WorldCall, parts: Parts): Promise<Answer> {
  onlyParameters(call.query, []);
  const { operation } = call.route;
  if (operation === undefined) throw badRequest("RescueMissing", "the path names no rescue");
  const { status, metadata } = await parts.worlds.kind.get(call.route.world, call.signal);
  const rescue = status.rescues?.find((one) => one.operation === operation);
  if (!rescue) {
    throw new Failure({
      status: 404,
      code: "NoSuchRescue",
      message: `World ${metadata.name} has no rescue ${operation}`,
      remediation: "list the World's rescues",
    });
  }
  using untilAnswered = new DisposableStack();
  const stall = untilAnswered.use(stallGuard(parts.limits.stallMs));
  const signal = AbortSignal.any([call.signal, stall.signal]);
  const driver = await parts.drivers(rescue.runtime, rescue.host, signal);
  const owner = await driver.ownerOf(rescue.computeId, signal);
  if (!isOfItsSession(rescue, { namespace: call.route.world.namespace, owner })) throw foreignCompute(rescue);
  await demandEnded(call, parts, rescue);
  const content = await driver.exportTar(rescue.computeId, signal);
  // From here on the stream ends it.
  untilAnswered.move();
  return { kind: "stream", type: "application/x-tar", content: watched(content, stall) };
}

/** A record can be written by hand, and names what would be handed out. */
const foreignCompute = ({ operation, computeId }: WorldRescue): Failure =>
  new Failure({
    status: 409,
    code: "ForeignCompute",
    message: `rescue ${operation} names ${computeId}, which is not what its session left behind`,
    remediation: "discard the rescue, which touches no container; find out who writes worlds/status",
  });

/** What a session still works in is no rescue, and what one of another World left behind is none of this World. */
async function demandEnded(call: WorldCall, parts: Parts, rescue: WorldRescue): Promise<void> {
  const { namespace, name: world } = call.route.world;
  let sandbox: Sandbox;
  try {
    sandbox = await parts.reader.get({ namespace, name: rescue.sandbox.name }, call.signal);
  } catch (error) {
    if (error instanceof Failure && error.status === 404) return;
    throw error;
  }
  if (sandbox.metadata.uid !== rescue.sandbox.uid) return;
  if (sandbox.spec.world?.name !== world) throw foreignCompute(rescue);
  if (ownCompute(sandbox)?.id !== rescue.computeId) return;
  throw new Failure({
    status: 409,
    code: "SessionEnding",
    message: `Sandbox ${rescue.sandbox.name} still has the container of rescue ${rescue.operation}`,
    remediation: "wait until the session has ended, or read its files",
    retryAfterSeconds: 5,
  });
}
