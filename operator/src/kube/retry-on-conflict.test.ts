import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError, isConflict } from "./errors.ts";
import { retryOnConflict } from "./retry-on-conflict.ts";

const conflict = () => new ApiError({ status: 409, reason: "Conflict", message: "the object has been modified" });

test("an attempt that meets a conflict is made again, after what it began with was read afresh", async () => {
  const steps: string[] = [];
  const attempt = async () => {
    steps.push("attempt");
    if (steps.length < 5) throw conflict();
    return "written";
  };
  assert.equal(await retryOnConflict(attempt, async () => void steps.push("refresh")), "written");
  assert.deepEqual(steps, ["attempt", "refresh", "attempt", "refresh", "attempt"]);
});

test("what is no conflict is thrown at once, an object that exists already included", async () => {
  for (const reason of ["AlreadyExists", "Forbidden"]) {
    let attempts = 0;
    const failing = async () => {
      attempts++;
      throw new ApiError({ status: reason === "Forbidden" ? 403 : 409, reason, message: reason });
    };
    await assert.rejects(retryOnConflict(failing), { reason });
    assert.equal(attempts, 1);
  }
});

test("conflicts without end are thrown, and a failing refresh ends it", async () => {
  const always = async () => {
    throw conflict();
  };
  await assert.rejects(retryOnConflict(always), isConflict);
  const refresh = async () => {
    throw new TypeError("gone");
  };
  await assert.rejects(retryOnConflict(always, refresh), TypeError);
});
