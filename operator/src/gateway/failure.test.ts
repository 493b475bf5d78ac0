import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError, ConnectionError } from "../kube/errors.ts";
import { RuntimeError } from "../runtime/errors.ts";
import { EnvironmentIncomplete } from "../runtime/session-environment.ts";
import { asFailure, Failure, statusAnswer } from "./failure.ts";

const mapped: [error: unknown, status: number, code: string][] = [
  [new RuntimeError("ComputeNotRunning", "x"), 409, "ComputeNotRunning"],
  [new RuntimeError("ComputeNotFound", "x"), 409, "ComputeNotFound"],
  [new RuntimeError("CommandTooLarge", "x"), 413, "CommandTooLarge"],
  [new RuntimeError("OutputTooLarge", "x"), 413, "OutputTooLarge"],
  [new RuntimeError("FileNotFound", "x"), 404, "FileNotFound"],
  [new RuntimeError("NotAFile", "x"), 422, "NotAFile"],
  [new RuntimeError("HostUnreachable", "x"), 503, "HostUnreachable"],
  [new RuntimeError("ExecConnectionLost", "x"), 502, "ExecConnectionLost"],
  [new EnvironmentIncomplete("SecretKeyNotFound", { message: "x", remediation: "y" }), 409, "SecretKeyNotFound"],
  [new ApiError({ status: 404, reason: "NotFound", message: "x" }), 404, "NotFound"],
  [new ApiError({ status: 429, reason: "TooManyRequests", message: "x" }), 503, "ApiServerUnavailable"],
  [new ApiError({ status: 403, reason: "Forbidden", message: "x" }), 500, "ApiServerRefused"],
  [new ConnectionError("x", { outcomeUnknown: true }), 503, "ApiServerUnreachable"],
  [new DOMException("x", "TimeoutError"), 504, "DeadlineExceeded"],
  [new TypeError("inside"), 500, "InternalError"],
];
for (const [error, status, code] of mapped) {
  test(`${error instanceof Error ? error.name : ""} ${code} is answered with ${status}`, () => {
    const failure = asFailure(error);
    assert.equal(failure.status, status);
    assert.equal(failure.code, code);
    assert.equal(failure.cause, error);
  });
}

test("an unforeseen error says nothing of the inside", () => {
  assert.ok(!asFailure(new Error("password=x")).message.includes("password"));
});

test("a Status carries code, cause and remediation twice: for programs, and where typed clients look", () => {
  const failure = new Failure({
    status: 409,
    code: "Hibernated",
    message: "it sleeps",
    remediation: "touch it",
    retryAfterSeconds: 3,
  });
  assert.deepEqual(statusAnswer(failure, { group: "g", kind: "sandboxes", name: "box" }), {
    kind: "Status",
    apiVersion: "v1",
    metadata: {},
    status: "Failure",
    message: "it sleeps: touch it",
    reason: "Conflict",
    code: 409,
    details: {
      group: "g",
      kind: "sandboxes",
      name: "box",
      causes: [
        { reason: "Hibernated", message: "it sleeps" },
        { reason: "Remediation", message: "touch it" },
      ],
      retryAfterSeconds: 3,
      code: "Hibernated",
      cause: "it sleeps",
      remediation: "touch it",
    },
  });
});
