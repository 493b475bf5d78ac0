import assert from "node:assert/strict";
import { test } from "node:test";
import { Terminal, Waiting } from "../reconciler/policy.ts";
import { RegistryError, type RegistryErrorCode } from "../registry/errors.ts";
import { TargetRegistryError } from "../registry/sources.ts";
import { explainOwnRegistryErrors, explainSourceErrors } from "./source-errors.ts";

const explained = async (error: unknown): Promise<unknown> => {
  try {
    return await explainSourceErrors("ghcr.io/acme/tools:1", async () => {
      throw error;
    });
  } catch (thrown) {
    return thrown;
  }
};

const heals: RegistryErrorCode[] = ["Unavailable", "DigestMismatch", "UploadNotAdvancing"];
for (const code of heals) {
  test(`${code} heals by itself: the copy waits and is tried again`, async () => {
    const cause = new RegistryError(code, "the registry said 503");
    const error = await explained(cause);
    assert.ok(error instanceof Waiting);
    assert.equal(error.reason, "RegistryUnavailable");
    assert.equal(error.afterMs, 10_000);
    assert.match(error.message, /ghcr\.io\/acme\/tools:1: the registry said 503/);
    assert.equal(error.cause, cause);
  });
}

test("a registry that names a pause gets it", async () => {
  const error = await explained(new RegistryError("Unavailable", "429", { retryAfterMs: 42_000 }));
  assert.ok(error instanceof Waiting);
  assert.equal(error.afterMs, 42_000);
});

const stalls: [code: RegistryErrorCode, reason: string][] = [
  ["NotFound", "ImageNotFound"],
  ["SourceNotAllowed", "ImageNotAllowed"],
  ["PlatformNotOffered", "PlatformNotOffered"],
  ["UnsupportedImage", "ImageUnsupported"],
  ["Malformed", "ImageUnsupported"],
  ["Refused", "ImageUnsupported"],
];
for (const [code, reason] of stalls) {
  test(`${code} stalls as ${reason}, names the image and says what to do`, async () => {
    const error = await explained(new RegistryError(code, "no"));
    assert.ok(error instanceof Terminal);
    assert.equal(error.reason, reason);
    assert.match(error.message, /ghcr\.io\/acme\/tools:1/);
    assert.match(error.remediation ?? "", /anew with another image/);
    assert.doesNotMatch(error.remediation ?? "", /grant access/, "that would change nothing here");
  });
}

test("who may not read the source is let in from outside: ImageUnauthorized waits, and is tried again", async () => {
  const cause = new RegistryError("Unauthorized", "403");
  const error = await explained(cause);
  assert.ok(error instanceof Waiting);
  assert.equal(error.reason, "ImageUnauthorized");
  assert.ok(error.afterMs >= 10_000);
  assert.match(error.message, /ghcr\.io\/acme\/tools:1: 403/);
  assert.match(error.remediation ?? "", /grant access .* it is tried again/);
  assert.equal(error.cause, cause);
});

const ours: [code: RegistryErrorCode, reason: string][] = [
  ["Unavailable", "RegistryUnavailable"],
  ["DigestMismatch", "RegistryUnavailable"],
  ["Unauthorized", "RegistryRefused"],
  ["Refused", "RegistryRefused"],
  ["NotFound", "RegistryRefused"],
  ["Malformed", "RegistryRefused"],
];
for (const [code, reason] of ours) {
  test(`${code} of the installation's own registry is no property of the image: ${reason} waits and heals`, async () => {
    const cause = new RegistryError(code, "no");
    const ofCopy = await explained(new TargetRegistryError(cause));
    const ofPublishing = await explainOwnRegistryErrors("publishing version 0", () => Promise.reject(cause)).catch(
      (error: unknown) => error,
    );
    for (const error of [ofCopy, ofPublishing]) {
      assert.ok(error instanceof Waiting, String(error));
      assert.equal(error.reason, reason);
      assert.match(error.message, /the installation's registry/);
      assert.match(error.remediation ?? "", /tried again/);
    }
  });
}

test("what is no registry's word is passed on as it is", async () => {
  const bug = new TypeError("undefined is not a function");
  assert.equal(await explained(bug), bug);
});

test("a success is passed on", async () => {
  assert.equal(await explainSourceErrors("busybox:1", async () => 7), 7);
});
