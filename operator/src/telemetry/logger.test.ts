import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

/** What a process that logs like this prints, line by line. */
async function logged(statements: string, level = "info"): Promise<Record<string, unknown>[]> {
  const module = JSON.stringify(join(import.meta.dirname, "logger.ts"));
  const script = `import { createLogger } from ${module}; const log = createLogger("${level}"); ${statements}`;
  const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", script]);
  return stdout
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line));
}

test("credentials, stdin and environment are redacted by key, at the top and one level down", async () => {
  const [line] = await logged(`
    log.info({ password: "s3cret", token: "s3cret", login: { password: "s3cret" }, request: { stdin: "s3cret",
      env: { A: "s3cret" }, authorization: "s3cret" }, host: "a" }, "said");
  `);
  assert.doesNotMatch(JSON.stringify(line), /s3cret/);
  assert.equal(line?.["host"], "a");
  assert.equal(line?.["msg"], "said");
});

test("an error is logged with type, message and causes, and without the fields that may carry a request", async () => {
  const [line] = await logged(`
    const cause = new TypeError("socket hang up");
    const error = Object.assign(new Error("no answer", { cause }), { request: { body: "s3cret" } });
    log.error({ err: error }, "failed");
  `);
  assert.partialDeepStrictEqual(line, {
    err: { type: "Error", message: "no answer", cause: { type: "TypeError", message: "socket hang up" } },
  });
  assert.doesNotMatch(JSON.stringify(line), /s3cret/);
});

test("of errors that come together each is logged, and so is what a disposal hid", async () => {
  const [together, hidden] = await logged(`
    const one = new Error("the registry said no", { cause: new TypeError("socket hang up") });
    const many = Array.from({ length: 100 }, (_, at) => new Error("number " + at));
    log.error({ err: new AggregateError([one, "late", ...many], "two things failed") }, "failed");
    log.error({ err: new SuppressedError(new Error("close failed"), new Error("work failed"), "an error was suppressed") }, "failed");
  `);
  assert.partialDeepStrictEqual(together, {
    err: {
      message: "two things failed",
      errors: [
        { message: "the registry said no", cause: { message: "socket hang up" } },
        "late",
        { message: "number 0" },
      ],
    },
  });
  assert.ok(JSON.stringify(together).length < 16_000, "however many there are");
  assert.partialDeepStrictEqual(hidden, {
    err: { type: "SuppressedError", errors: [{ message: "close failed" }, { message: "work failed" }] },
  });
});

test("an error that is its own cause is logged all the same", async () => {
  const lines = await logged(`
    const error = new Error("a circle");
    error.cause = error;
    log.error({ err: error }, "failed");
  `);
  assert.equal(lines.length, 1);
});

test("what is below the level is not logged", async () => {
  assert.deepEqual(await logged('log.info("quiet"); log.debug("quiet")', "warn"), []);
});
