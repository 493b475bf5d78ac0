// sandboxes.create({world, ttlSecond: 60}) made a session of the World's own length.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ConfigurationError } from "./errors.ts";
import { Sandboxes } from "./sandboxes.ts";
import { Session } from "./session.ts";
import { Transport } from "./transport.ts";

const never = (): never => assert.fail("something was sent");
const named = (option: string) => (error: unknown) => {
  assert.ok(error instanceof ConfigurationError, String(error));
  assert.equal(error.code, "UnknownOption");
  assert.match(error.message, new RegExp(`has no option "${option}"$`));
  assert.match(error.remediation ?? "", /its options are .*signal.*timeoutMs/);
  return true;
};
/** As a program in plain JavaScript states them. */
const misspelt: object = { ttlSecond: 60 };

test("an option that create does not know is refused by name before anything is sent", async () => {
  const sandboxes = new Sandboxes(async () => never());
  await assert.rejects(sandboxes.create({ world: "w", ...misspelt }), named("ttlSecond"));
});

test("so is one of a session's verbs", async () => {
  const transport = new Transport({ endpoint: never, isSession: never } as never);
  const sandbox = { metadata: { name: "s", namespace: "n" }, spec: {}, status: {} } as never;
  const session = new Session({
    sandbox,
    ref: { namespace: "n", name: "s" },
    transport,
    untilReady: async () => never(),
  });
  for (const call of [
    () => session.exec("true", misspelt),
    () => session.touch(misspelt),
    () => session.snapshot(misspelt),
    () => session.close(misspelt),
    () => session.writeFile("/a", "b", misspelt),
    () => session.readFile("/a", misspelt),
  ]) {
    await assert.rejects(async () => call(), named("ttlSecond"));
  }
});
