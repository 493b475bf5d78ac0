import assert from "node:assert/strict";
import { test } from "node:test";
import type { SandboxRequest } from "@agentworlds/crds";
import { openWake } from "./requests.ts";

const AT = "2031-01-01T00:00:00.000Z";
const open = (id: string): SandboxRequest => ({ id, verb: "Snapshot", user: "ada", at: AT });
const answered = (id: string): SandboxRequest => ({ ...open(id), result: { outcome: "Succeeded", at: AT } });

test("only an unanswered touch of the same ttl serves a later wake", () => {
  assert.equal(openWake([open("a"), { ...answered("b"), verb: "Touch" }], undefined), undefined);
  const wake: SandboxRequest = { ...open("c"), verb: "Touch", parameters: { ttlSeconds: 60 } };
  assert.equal(openWake([wake], undefined), undefined);
  assert.equal(openWake([wake], 60)?.id, "c");
});
