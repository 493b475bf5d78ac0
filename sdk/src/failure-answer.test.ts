import assert from "node:assert/strict";
import { test } from "node:test";
import {
  ClosedError,
  ConflictError,
  NotFoundError,
  PermissionError,
  type RequestError,
  UnavailableError,
} from "./errors.ts";
import { toRequestError } from "./failure-answer.ts";

const session = { what: "POST …/exec", isSession: true, once: true } as const;
const kube = { what: "GET …/worlds/a", isSession: false, once: false } as const;
const bare = (status: number, body: unknown) => ({ status, body, retryAfter: undefined });

test("what the gateway says of a refusal arrives member by member", () => {
  const error = toRequestError(
    bare(409, {
      message: "Sandbox a is hibernated: touch it",
      reason: "Conflict",
      details: { code: "Hibernated", cause: "Sandbox a is hibernated", remediation: "touch it", retryAfterSeconds: 3 },
    }),
    session,
  );
  assert.ok(error instanceof ConflictError);
  assert.equal(error.name, "ConflictError");
  assert.equal(error.code, "Hibernated");
  assert.equal(error.cause, "Sandbox a is hibernated");
  assert.equal(error.remediation, "touch it");
  assert.equal(error.status, 409);
  assert.equal(error.retryAfterMs, 3_000);
  assert.equal(error.outcomeUnknown, false);
});

const classes: [status: number, of: new (...facts: never[]) => RequestError][] = [
  [401, PermissionError],
  [403, PermissionError],
  [404, NotFoundError],
  [409, ConflictError],
  [410, ClosedError],
  [429, UnavailableError],
  [500, UnavailableError],
  [503, UnavailableError],
];
for (const [status, of] of classes) {
  test(`${status} is a ${of.name}`, () => assert.ok(toRequestError(bare(status, {}), kube) instanceof of));
}

test("kube-apiserver's own refusal keeps its reason and sentence", () => {
  const error = toRequestError(bare(409, { reason: "AlreadyExists", message: 'worlds "a" already exists' }), kube);
  assert.equal(error.code, "AlreadyExists");
  assert.equal(error.message, 'worlds "a" already exists');
});

test("a plain 404 under the sessions API says that no gateway is registered, not that a Sandbox is missing", () => {
  const error = toRequestError(bare(404, "404 page not found\n"), session);
  assert.equal(error.code, "SessionsApiMissing");
  assert.match(error.remediation ?? "", /apiservices/);
});

test("a gateway that is down is named as such", () => {
  assert.equal(toRequestError(bare(503, "service unavailable"), session).code, "GatewayUnavailable");
});

test("a 5xx leaves the outcome of a command unknown, a 4xx does not", () => {
  assert.equal(toRequestError(bare(504, { reason: "Timeout" }), session).outcomeUnknown, true);
  assert.equal(toRequestError(bare(422, { reason: "Invalid" }), session).outcomeUnknown, false);
  assert.equal(toRequestError(bare(504, { reason: "Timeout" }), kube).outcomeUnknown, false);
});

test("Retry-After is read from the header where the body has none", () => {
  assert.equal(toRequestError({ status: 429, body: "", retryAfter: "7" }, kube).retryAfterMs, 7_000);
  assert.equal(toRequestError({ status: 429, body: "", retryAfter: "soon" }, kube).retryAfterMs, undefined);
});
