/**
 * What people ask of rescues, answered: retry, export, discard. A gateway wrote the request; the answer is written when the
 * deed is done, so an operator that ends in between does it again, and each deed may be repeated.
 */
import { clip, LIMITS, type WorldRequest, type WorldRequestResult, type WorldRescue } from "@agentworlds/crds";
import { wordsOf } from "../../reconciler/words-of.ts";
import type { WorldScope } from "../scope.ts";
import { statusOf } from "../status-writer.ts";
import { isItsSessions } from "./adopt.ts";
import { exportRescue } from "./export.ts";
import { ForeignRescue, hostOf } from "./host.ts";
import { giveUp, isEndOfPass, type Tended, tendRescue } from "./tend.ts";

type Answer = Omit<WorldRequestResult, "at">;

/** Requests nobody has answered, oldest first. */
export const openRequests = ({ world }: WorldScope): readonly WorldRequest[] =>
  (statusOf(world).requests ?? []).filter((request) => request.result === undefined);

/** Does what is asked for, once, and answers. */
export async function answerRequest(scope: WorldScope, request: WorldRequest): Promise<void> {
  const { operation } = request.parameters;
  const rescue = statusOf(scope.world).rescues?.find((one) => one.operation === operation);
  const answer = rescue ? await actOn(scope, rescue, request) : await answerWithoutRescue(scope, request);
  const at = new Date(scope.context.clock.now()).toISOString();
  const { writer } = scope.dependencies;
  await writer.answerRequest(scope.ref, { id: request.id, result: { ...answer, at } }, scope.context.signal);
}

async function actOn(scope: WorldScope, rescue: WorldRescue, request: WorldRequest): Promise<Answer> {
  if (isItsSessions(scope, rescue)) {
    return { outcome: "Refused", code: "SessionEnding", message: "its session has not ended yet; ask again" };
  }
  try {
    switch (request.verb) {
      case "RetryRescue":
        return answerOf(await tendRescue(scope, rescue, { isAsked: true }));
      case "ExportRescue":
        return { outcome: "Succeeded", ...(await exportRescue(scope, rescue)) };
      case "DiscardRescue":
        return await discard(scope, rescue, request);
    }
  } catch (error) {
    if (isEndOfPass(scope, error)) throw error;
    scope.dependencies.log.warn({ err: error, request: request.id }, "what was asked of a rescue could not be done");
    return { outcome: "Failed", code: CODES[request.verb], message: clip(wordsOf(error), LIMITS.message) };
  }
}

const CODES = { RetryRescue: "RetryFailed", ExportRescue: "ExportFailed", DiscardRescue: "DiscardFailed" } as const;

function answerOf(tended: Tended): Answer {
  switch (tended.kind) {
    case "published":
      return { outcome: "Succeeded", version: tended.version.version, digest: tended.version.digest };
    case "failed":
      return { outcome: "Failed", code: CODES.RetryRescue, message: tended.message };
    case "lost":
      return { outcome: "Failed", code: "WorkLost", message: tended.lost.message };
    case "kept":
      return { outcome: "Refused", code: "NotPublishable", message: tended.because ?? "nothing was tried" };
  }
}

/** A host that cannot be asked keeps what it has: somebody who discards must know that it is gone. */
async function discard(scope: WorldScope, rescue: WorldRescue, { user }: WorldRequest): Promise<Answer> {
  const published = publishedAs(scope, rescue.operation);
  if (published) return published;
  const message = `discarded by ${user}${await whatStays(scope, rescue)}`;
  const tended = await giveUp(scope, rescue, { cause: "Discarded", message, discardedBy: user });
  return { outcome: "Succeeded", message: tended.kind === "lost" ? tended.lost.message : message };
}

/** A record of what is not this World's goes, and nothing else. Throws when the host cannot be asked. */
async function whatStays(scope: WorldScope, rescue: WorldRescue): Promise<string> {
  try {
    await hostOf(scope, rescue);
    return "";
  } catch (error) {
    if (!(error instanceof ForeignRescue)) throw error;
    return `; ${error.message}`;
  }
}

/** Work that is a version already is not discarded by this verb. */
function publishedAs({ world }: WorldScope, operation: string): Answer | undefined {
  const version = statusOf(world).versions?.find((one) => one.operation === operation);
  return (
    version && {
      outcome: "Refused",
      code: "Published",
      message: `that work is version ${version.version}`,
      version: version.version,
      digest: version.digest,
    }
  );
}

/** A repetition after the deed, or a name that nobody knows. */
async function answerWithoutRescue(scope: WorldScope, { verb, parameters, user }: WorldRequest): Promise<Answer> {
  const { operation } = parameters;
  const published = publishedAs(scope, operation);
  if (published) return verb === "RetryRescue" ? { ...published, outcome: "Succeeded" } : published;
  const lost = statusOf(scope.world).lostWork?.find((one) => one.operation === operation);
  if (!lost) {
    return { outcome: "Refused", code: "NoSuchRescue", message: `the World has no rescue ${operation}` };
  }
  if (verb !== "DiscardRescue") return { outcome: "Refused", code: "WorkLost", message: lost.message };
  await scope.dependencies.writer.noteLoss(scope.ref, { operation, user }, scope.context.signal);
  return { outcome: "Succeeded", message: lost.message };
}
