import assert from "node:assert/strict";
import { test } from "node:test";
import type { KubeClient } from "../kube/contract.ts";
import { systemClock } from "../reconciler/clock.ts";
import { type Attempt, Authorizer, attemptsToReview } from "./authorization.ts";
import type { Identity } from "./identity.ts";

const attempt = (verb: string): Attempt => ({
  verb,
  namespace: "lab",
  resource: "sandboxes",
  subresource: "files",
  name: "x",
});
const verbsOf = (attempts: readonly Attempt[]): string[] => attempts.map(({ verb }) => verb);

const reviews: [name: string, verb: string, via: Identity["via"], reaches: boolean, want: string[]][] = [
  ["a proxied look needs nothing more", "get", "Proxied", false, []],
  ["a proxied read of contents needs create", "get", "Proxied", true, ["create"]],
  ["a proxied write of contents needs create", "update", "Proxied", true, ["create"]],
  ["a direct look needs its verb", "get", "Direct", false, ["get"]],
  ["a direct read of contents needs its verb and create", "get", "Direct", true, ["get", "create"]],
  ["a direct exec needs create once", "create", "Direct", true, ["create"]],
];
for (const [name, verb, via, reachesIntoSession, want] of reviews) {
  test(name, () => assert.deepEqual(verbsOf(attemptsToReview(attempt(verb), { via, reachesIntoSession })), want));
}

const ada: Identity = { user: "ada", uid: "1", groups: ["dev"], extra: { scope: ["a"] }, via: "Direct" };

test("what was allowed is asked again after ten seconds, what was refused every time, and identities do not mix", async () => {
  let now = 1_000;
  let allowed = false;
  const asked: unknown[] = [];
  const authorizer = new Authorizer({
    kube: reviewer((body) => {
      asked.push(body);
      return { status: { allowed } };
    }),
    clock: { ...systemClock, now: () => now },
  });
  const require = (identity: Identity) => authorizer.require(identity, [attempt("create")], AbortSignal.timeout(5_000));
  const refused = { status: 403, code: "Forbidden" };
  await assert.rejects(require(ada), refused);
  allowed = true;
  await require(ada);
  await require(ada);
  assert.equal(asked.length, 2);
  allowed = false;
  await assert.rejects(require({ ...ada, groups: [] }), refused);
  await assert.rejects(require({ ...ada, extra: { scope: ["b"] } }), refused);
  now += 10_000;
  await assert.rejects(require(ada), refused);
  assert.equal(asked.length, 5);
});

test("an explicit denial outranks an allowance", async () => {
  const authorizer = new Authorizer({
    kube: reviewer(() => ({ status: { allowed: true, denied: true } })),
    clock: systemClock,
  });
  await assert.rejects(authorizer.require(ada, [attempt("get")], AbortSignal.timeout(5_000)), { code: "Forbidden" });
});

/** A kube client that answers reviews and nothing else. */
function reviewer(answer: (body: unknown) => unknown): KubeClient {
  return {
    resource() {
      throw new Error("reviews only");
    },
    request: async <R>(_method: string, _path: string, options: { body?: unknown }) => answer(options.body) as R,
    async close() {
      throw new Error("reviews only");
    },
  };
}
