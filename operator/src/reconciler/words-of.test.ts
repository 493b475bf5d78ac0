import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { wordsOf } from "./words-of.ts";

const refused = (address: string) =>
  Object.assign(new Error(`connect ECONNREFUSED ${address}`), { code: "ECONNREFUSED" });

const cases: [what: string, error: unknown, words: string][] = [
  ["an error with a message", new Error("socket hang up"), "socket hang up"],
  ["several errors with a message", new AggregateError([new Error("a")], "two hosts failed"), "two hosts failed"],
  [
    "several addresses that failed",
    new AggregateError([refused("::1:1"), refused("127.0.0.1:1")]),
    "connect ECONNREFUSED ::1:1; connect ECONNREFUSED 127.0.0.1:1",
  ],
  ["the same twice", new AggregateError([new Error("timeout"), new Error("timeout")]), "timeout"],
  ["a code alone", Object.assign(new Error(""), { code: "ECONNRESET" }), "ECONNRESET"],
  ["nothing but its kind", new TypeError(""), "TypeError"],
  ["no error at all", "late", "late"],
];
for (const [what, error, words] of cases) test(`${what} says "${words}"`, () => assert.equal(wordsOf(error), words));

test("what Node says of a name with two addresses that nobody listens at has words", async () => {
  const socket = connect({
    host: "two.test",
    port: 1,
    lookup: (_, __, done) =>
      done(null, [
        { address: "127.0.0.1", family: 4 },
        { address: "127.0.0.2", family: 4 },
      ]),
  });
  const error = await new Promise<Error>((resolve) => socket.once("error", resolve));
  assert.equal(error.message, "", "this is what it is for");
  assert.equal(wordsOf(error), "connect ECONNREFUSED 127.0.0.1:1; connect ECONNREFUSED 127.0.0.2:1");
});
