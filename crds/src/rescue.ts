import * as z from "zod";
import { causedBySchema, LIMITS, sandboxReferenceSchema } from "./object.ts";
import { count, digest, list, text, time, word } from "./schema.ts";

/** Work that could not be published, as World and Runtime record it. What differs between the two is theirs to add. */

/** Ids of operations of this World's rescues. */
export const rescueOperations = () => list(word(64), LIMITS.rescues);

/** Members of a rescue that both records have. */
export const rescueFields = {
  operation: word(64).describe("Id of the operation that failed; the rescue is named by it."),
  sandbox: sandboxReferenceSchema.describe("The session whose work it is."),
  host: word(63).describe("Host that keeps the container."),
  computeId: word(256).describe("Id of the container on that host."),
  engine: word(128)
    .exactOptional()
    .describe(
      "Id of the engine that has it, from the label of its volume `agentworlds-engine-<installation>`. Another engine at the host's address is not believed about it.",
    ),
  capture: word(256)
    .exactOptional()
    .describe("Image on that host that holds the work, when it had been captured already."),
  consistency: word(64).exactOptional().describe("How the tree stood when it was captured. Unset: `Crash`."),
  causedBy: causedBySchema.exactOptional().describe("Who ended the session."),
  base: digest().exactOptional().describe("Version the work is based on. It is published only while that is head."),
  bootedFrom: digest().exactOptional().describe("Version the container was booted from. Unset: `base`."),
  versionReason: word(64).exactOptional().describe("Reason that its version will carry. Unset: `Crash`."),
  description: text(LIMITS.description).exactOptional().describe("Prose of its version. Unset: the one in force."),
  ignoredRescues: rescueOperations()
    .exactOptional()
    .describe("Rescues that its session was told to ignore when it booted."),
  snapshot: z
    .object({
      operation: word(64).describe("Id of the operation."),
      consistency: word(64).exactOptional().describe("How the tree stood when it was captured. Unset: `Fuzzy`."),
      causedBy: causedBySchema.exactOptional().describe("Who asked for it."),
      description: text(LIMITS.description).exactOptional().describe("Prose of its version. Unset: the one in force."),
    })
    .exactOptional()
    .describe(
      "A snapshot of the session that was under way. What it captured is older than the container: it becomes a version only where the container is gone, or is not found before its time is over.",
    ),
  reason: word(128).describe("PascalCase constant: why it could not be published."),
  message: text(LIMITS.message).describe("The same for a person."),
  since: time().describe("Since when it is kept."),
  expiresAt: time()
    .exactOptional()
    .describe(
      "When its time is over: `since` and the Runtime's `rescueSeconds` of then. The silences of its host are added. Unset: those count from `since`.",
    ),
} as const;

/** What became of work that ended in no version. */
export const lostWorkSchema = z.object({
  operation: word(64).describe("Id of the operation; the rescue was named by it."),
  sandbox: sandboxReferenceSchema.describe("The session whose work it was."),
  runtime: word(63).describe("Runtime that kept the container."),
  host: word(63).describe("Host that kept the container."),
  computeId: word(256).describe("Id of the container on that host."),
  base: digest().exactOptional().describe("Version the work was based on."),
  cause: z
    .enum(["Expired", "Discarded", "ContainerGone"])
    .describe(
      "`Expired`: its time was over before it could be published. `Discarded`: somebody said so. `ContainerGone`: neither container nor capture was on its host any more.",
    ),
  message: text(LIMITS.message).describe("The same for a person."),
  since: time().describe("Since when it had been kept."),
  at: time().describe("When it was given up."),
  discardedBy: text(LIMITS.user)
    .exactOptional()
    .describe("Authenticated user who discarded it, or who took note of its loss by discarding it afterwards."),
});

/** Members that only the World's record has: the World is who tries again. */
export const retryFields = {
  attempts: count().exactOptional().describe("Attempts to publish it since it is a rescue."),
  retryAt: time().exactOptional().describe("When the next attempt is due. Unset: at once."),
  lastError: text(LIMITS.message).exactOptional().describe("What the last attempt failed on."),
} as const;
