import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { test } from "node:test";
import { type FakeApi, fakeApi, json } from "../kube/fake-api.test-kit.ts";
import type { Clock } from "../reconciler/clock.ts";
import { createTestClock } from "../reconciler/test-clock.test-kit.ts";
import { TokenReviews } from "./token-reviews.ts";

const signal = new AbortController().signal;
const from = { address: "192.0.2.1", signal };

const valid = (response: ServerResponse): void =>
  json(response, 201, { status: { authenticated: true, user: { username: "ada", groups: ["web"] } } });
const refused = (response: ServerResponse): void => json(response, 201, { status: { authenticated: false } });

const reviewsOf = (api: FakeApi, clock: Clock): TokenReviews => new TokenReviews({ kube: api.client(), clock, signal });

/** An API server whose reviews stay open until they are answered. */
async function slowApi(): Promise<{
  api: FakeApi;
  open: ServerResponse[];
  arrived(count: number): Promise<void>;
  /** The review of this token. */
  asked(token: string): Promise<ServerResponse>;
}> {
  const open: ServerResponse[] = [];
  let told = Promise.withResolvers<void>();
  const api = await fakeApi((_, response) => {
    open.push(response);
    told.resolve();
    told = Promise.withResolvers();
  });
  const arrived = async (count: number) => {
    while (api.seen.length < count) await told.promise;
  };
  const asked = async (token: string): Promise<ServerResponse> => {
    for (let index = 0; ; index++) {
      await arrived(index + 1);
      const response = open[index];
      if (response !== undefined && JSON.parse(api.seen[index]?.body ?? "").spec.token === token) return response;
    }
  };
  return { api, open, arrived, asked };
}

test("a valid token is asked about once in ten seconds", async () => {
  const clock = createTestClock();
  await using api = await fakeApi((_, response) => valid(response));
  const reviews = reviewsOf(api, clock);
  const ada = { user: "ada", uid: undefined, groups: ["web"], extra: {}, via: "Direct" };
  assert.deepEqual(await reviews.identityOf("good", from), ada);
  assert.deepEqual(await reviews.identityOf("good", from), ada);
  assert.equal(api.seen.length, 1);
  await clock.advance(10_000);
  assert.deepEqual(await reviews.identityOf("good", from), ada);
  assert.equal(api.seen.length, 2);
});

test("a refused token is not asked about again for two seconds, and then it is", async () => {
  const clock = createTestClock();
  await using api = await fakeApi((_, response) => (api.seen.length === 1 ? refused(response) : valid(response)));
  const reviews = reviewsOf(api, clock);
  for (let tries = 0; tries < 5; tries++) assert.equal(await reviews.identityOf("early", from), undefined);
  assert.equal(api.seen.length, 1);
  await clock.advance(2_000);
  assert.equal((await reviews.identityOf("early", from))?.user, "ada");
});

test("an API server that fails refuses no token", async () => {
  await using api = await fakeApi((_, response) =>
    api.seen.length === 1 ? json(response, 500, { kind: "Status" }) : valid(response),
  );
  const reviews = reviewsOf(api, createTestClock());
  await assert.rejects(reviews.identityOf("good", from), { name: "ApiError", status: 500 });
  assert.equal((await reviews.identityOf("good", from))?.user, "ada");
});

test("callers with one token share one review; who goes away takes it from nobody", async () => {
  const { api, open, arrived } = await slowApi();
  await using _api = api;
  const reviews = reviewsOf(api, createTestClock());
  const gone = new AbortController();
  const first = assert.rejects(reviews.identityOf("good", { ...from, signal: gone.signal }), { message: "gone" });
  const others = Array.from({ length: 200 }, () => reviews.identityOf("good", from));
  await arrived(1);
  gone.abort(new Error("gone"));
  await first;
  for (const response of open) valid(response);
  for (const identity of await Promise.all(others)) assert.equal(identity?.user, "ada");
  assert.equal(api.seen.length, 1);
});

test("a flood of tokens has 32 places per address and four connections in all; another address gets its turn", async () => {
  const { api, open, arrived, asked } = await slowApi();
  await using _api = api;
  const reviews = reviewsOf(api, createTestClock());
  const flood = Array.from({ length: 100 }, (_, index) => reviews.identityOf(`bogus-${index}`, from));
  const verdicts = Promise.allSettled(flood);
  const other = reviews.identityOf("good", { address: "192.0.2.2", signal });
  await arrived(4);
  assert.equal(api.seen.length, 4);
  for (let answered = 0; answered < 33; answered++) {
    await arrived(answered + 1);
    const review = JSON.parse(api.seen[answered]?.body ?? "");
    const response = open[answered];
    assert.ok(response !== undefined);
    if (review.spec.token === "good") valid(response);
    else refused(response);
  }
  assert.equal((await other)?.user, "ada");
  const refusals = (await verdicts).filter((verdict) => verdict.status === "rejected");
  assert.equal(refusals.length, 68);
  for (const { reason } of refusals) {
    assert.equal(reason.status, 429);
    assert.equal(reason.message, "32 bearer tokens of this address are already under way in this gateway");
  }
  assert.equal(api.seen.length, 33);
  // Its places are free again.
  const later = reviews.identityOf("later", from);
  valid(await asked("later"));
  assert.equal((await later)?.user, "ada");
});

test("an API server that does not answer costs ten seconds, and the places are free again", async () => {
  const clock = createTestClock();
  const { api, arrived, asked } = await slowApi();
  await using _api = api;
  const reviews = reviewsOf(api, clock);
  const flood = Array.from({ length: 32 }, (_, index) => reviews.identityOf(`any-${index}`, from));
  const verdicts = Promise.allSettled(flood);
  await arrived(4);
  await clock.advance(10_000);
  for (const verdict of await verdicts) {
    assert.ok(verdict.status === "rejected");
    assert.deepEqual([verdict.reason.status, verdict.reason.code], [503, "ApiServerUnreachable"]);
  }
  // Those whose turn came in this very moment have been asked about, too.
  const next = reviews.identityOf("good", from);
  valid(await asked("good"));
  assert.equal((await next)?.user, "ada");
});
