import assert from "node:assert/strict";
import { test } from "node:test";
import { writesIn } from "./audit-log.ts";

const event = (verb: string, resource: string, more: { at?: number; agent?: string } = {}): string =>
  JSON.stringify({
    verb,
    requestURI: `/${resource}`,
    userAgent: more.agent ?? "agent-worlds",
    objectRef: { resource },
    requestReceivedTimestamp: new Date(more.at ?? 5).toISOString(),
  });

test("writes of the operator in the span are counted, and nothing else", () => {
  const log = [
    event("patch", "sandboxes"),
    event("create", "events"),
    event("get", "sandboxes"),
    event("patch", "leases"),
    event("create", "subjectaccessreviews"),
    event("patch", "worlds", { at: 1 }),
    event("patch", "worlds", { at: 10 }),
    event("patch", "worlds", { agent: "kubectl" }),
    '{"verb":"patch","half a line',
  ].join("\n");
  assert.deepEqual(writesIn(log, { from: 2, to: 10, agent: "agent-worlds" }), ["patch /sandboxes", "create /events"]);
});
