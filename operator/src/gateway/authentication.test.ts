import assert from "node:assert/strict";
import { IncomingMessage } from "node:http";
import { Socket } from "node:net";
import { test } from "node:test";
import { fakeApi, json } from "../kube/fake-api.test-kit.ts";
import { systemClock } from "../reconciler/clock.ts";
import { Authenticator } from "./authentication.ts";
import { TokenReviews } from "./token-reviews.ts";

const signal = new AbortController().signal;

function requestWith(headers: Record<string, string>): IncomingMessage {
  const request = new IncomingMessage(new Socket());
  Object.assign(request.headers, headers);
  return request;
}

/** An authenticator of a cluster in which the token `good` is ada's. */
async function authenticator(): Promise<AsyncDisposable & { of(headers: Record<string, string>): Promise<unknown> }> {
  const api = await fakeApi(({ body }, response) => {
    const isGood = JSON.parse(body).spec.token === "good";
    json(response, 201, { status: isGood ? { authenticated: true, user: { username: "ada" } } : {} });
  });
  const reviews = new TokenReviews({ kube: api.client(), clock: systemClock, signal });
  const it = new Authenticator({ reviews, clock: systemClock, trust: () => undefined });
  return {
    of: (headers) => it.authenticate(requestWith(headers), signal),
    [Symbol.asyncDispose]: () => api[Symbol.asyncDispose](),
  };
}

test("a direct client is whoever its bearer token is of", async () => {
  await using clients = await authenticator();
  const ada = { user: "ada", uid: undefined, groups: [], extra: {}, via: "Direct" };
  assert.deepEqual(await clients.of({ authorization: "Bearer good" }), ada);
  await assert.rejects(clients.of({ authorization: "Bearer bad" }), { status: 401, code: "Unauthenticated" });
  await assert.rejects(clients.of({ authorization: "Basic Z29vZDo=" }), { status: 401, code: "Unauthenticated" });
  await assert.rejects(clients.of({}), { status: 401, code: "Unauthenticated" });
});

for (const [header, name] of [
  ["impersonate-user", "Impersonate-User"],
  ["impersonate-group", "Impersonate-Group"],
  ["impersonate-uid", "Impersonate-Uid"],
  ["impersonate-extra-scopes", "Impersonate-Extra-Scopes"],
] as const) {
  test(`a direct client that sends ${name} is refused by that name, whatever its token: it would act as itself`, async () => {
    await using clients = await authenticator();
    for (const authorization of ["Bearer good", "Bearer bad"]) {
      const refused = clients.of({ authorization, [header]: "reader" });
      await assert.rejects(refused, { status: 400, code: "ImpersonationNotSupported", message: new RegExp(name) });
    }
  });
}
