import assert from "node:assert/strict";
import { test } from "node:test";
import type { SandboxOperation } from "@agentworlds/crds";
import { ApiError } from "../kube/errors.ts";
import { isRuntimeError } from "../runtime/errors.ts";
import { at, sandboxOf } from "../runtime/test-objects.test-kit.ts";
import { permitOf, startPermit } from "./start-permit.ts";

const owner = { installation: "i", namespace: "team", sandbox: "lab", sandboxUid: "u1", boot: 2 };
const isOver = (error: unknown): boolean => isRuntimeError(error, "ComputeNotRunning");
const session = (operation?: Pick<SandboxOperation, "verb" | "stage">, boot = 2) =>
  sandboxOf({
    metadata: { name: "lab", uid: "u1" },
    status: {
      boot,
      compute: { runtime: "local", host: "a", id: `aw-u1-${boot}`, boot },
      expiresAt: at(900),
      ...(operation && { operation: { id: "o", reason: "Snapshot", since: at(0), attempts: 0, ...operation } }),
    },
  });

test("a session that runs may start, and one whose snapshot is captured", () => {
  assert.equal(permitOf(session(), owner), "Now");
  for (const stage of ["Captured", "Uploaded", "Manifested", "Committed"] as const)
    assert.equal(permitOf(session({ verb: "Snapshot", stage }), owner), "Now", stage);
});

test("nothing starts from the intent of a snapshot until it is captured", () => {
  for (const stage of ["Intended", "Frozen"] as const)
    assert.equal(permitOf(session({ verb: "Snapshot", stage }), owner), "NotYet", stage);
});

test("nothing starts any more in a session that ends, in another boot, or for another Sandbox of the name", () => {
  for (const verb of ["Hibernate", "Close"] as const)
    assert.throws(() => permitOf(session({ verb, stage: "Intended" }), owner), isOver);
  assert.throws(() => permitOf(session(undefined, 3), owner), isOver);
  assert.throws(() => permitOf(session(), { ...owner, sandboxUid: "u2" }), isOver);
});

test("a Sandbox that is gone has ended; an API server that does not answer permits nothing", async () => {
  const { signal } = new AbortController();
  const failing = (status: number) =>
    startPermit({ get: () => Promise.reject(new ApiError({ status, reason: "NotFound", message: "" })) });
  await assert.rejects(failing(404)(owner, signal), isOver);
  await assert.rejects(failing(503)(owner, signal), ApiError);
});
