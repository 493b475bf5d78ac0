import assert from "node:assert/strict";
import { test } from "node:test";
import { ConflictError, ConnectionError, DeadlineError, PermissionError, UnavailableError } from "./errors.ts";
import { judgeRetry, type RetryFacts, toConnectionError } from "./retry.ts";

const unavailable = (status: number, retryAfterMs?: number) =>
  new UnavailableError({ code: "X", message: "", status, retryAfterMs });
const lost = new ConnectionError({ code: "ConnectionLost", message: "", outcomeUnknown: true });
const unreachable = new ConnectionError({ code: "Unreachable", message: "", outcomeUnknown: false });
const notReady = new ConflictError({ code: "NotReady", message: "", status: 409 });
const hibernated = new ConflictError({ code: "Hibernated", message: "", status: 409 });
const unauthorized = new PermissionError({ code: "Unauthorized", message: "", status: 401 });
const untrusted = new ConnectionError({
  code: "Unreachable",
  message: "",
  cause: Object.assign(new Error("self-signed"), { code: "SELF_SIGNED_CERT_IN_CHAIN" }),
});
const deadline = new DeadlineError({ code: "DeadlineExceeded", message: "" });

const once: RetryFacts = { repetition: "Once", tries: 1, refreshed: false, elapsedMs: 0 };
const repeatable: RetryFacts = { ...once, repetition: "Repeatable" };

const cases: [promise: string, error: unknown, facts: RetryFacts, kind: string][] = [
  ["a command whose connection broke under it is not sent again", lost, once, "GiveUp"],
  ["a read whose connection broke is", lost, repeatable, "Again"],
  ["a command that was never sent is", unreachable, once, "Again"],
  ["a command answered 502 is not", unavailable(502), once, "GiveUp"],
  ["a command answered 503 is not", unavailable(503), once, "GiveUp"],
  ["a command answered 504 is not", unavailable(504), once, "GiveUp"],
  ["a read answered 503 is", unavailable(503), repeatable, "Again"],
  ["a read answered 500 is not", unavailable(500), repeatable, "GiveUp"],
  ["a command refused by 429 is: nothing was done", unavailable(429), once, "Again"],
  [
    "NotReady right after Ready is waited out, for a command too",
    notReady,
    { ...once, tries: 9, elapsedMs: 4_000 },
    "Again",
  ],
  ["NotReady for long is told", notReady, { ...once, elapsedMs: 5_000 }, "GiveUp"],
  ["any other conflict is told at once", hibernated, repeatable, "GiveUp"],
  ["401 has the credentials read anew", unauthorized, once, "Refresh"],
  ["401 after that is told", unauthorized, { ...once, refreshed: true }, "GiveUp"],
  ["an untrusted certificate has the files read anew", untrusted, once, "Refresh"],
  ["a deadline is the end", deadline, repeatable, "GiveUp"],
  ["a mistake in the code is told", new TypeError("x"), repeatable, "GiveUp"],
  ["five tries are enough", unavailable(503), { ...repeatable, tries: 5 }, "GiveUp"],
];
for (const [promise, error, facts, kind] of cases) {
  test(promise, () => assert.equal(judgeRetry(error, facts).kind, kind));
}

test("the server's wish decides when", () => {
  assert.deepEqual(judgeRetry(unavailable(429, 1_500), once), { kind: "Again", afterMs: 1_500 });
});

const coded = (code: string) => Object.assign(new Error(code), { code });
const sockets: [code: string, outcomeUnknown: boolean][] = [
  ["ECONNREFUSED", false],
  ["ENOTFOUND", false],
  ["UND_ERR_CONNECT_TIMEOUT", false],
  ["ECONNRESET", true],
  ["UND_ERR_SOCKET", true],
  ["EPIPE", true],
];
for (const [code, outcomeUnknown] of sockets) {
  test(`${code} ${outcomeUnknown ? "may have" : "cannot have"} reached the server`, () => {
    assert.equal(toConnectionError(coded(code), "GET /")?.outcomeUnknown, outcomeUnknown);
  });
}

test("an error of the code is not told as one of the network", () => {
  assert.equal(toConnectionError(new TypeError("x"), "GET /"), undefined);
  assert.equal(toConnectionError(coded("UND_ERR_INVALID_ARG"), "GET /"), undefined);
});
