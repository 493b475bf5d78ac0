import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { test } from "node:test";
import { createRegistryClient } from "./client.ts";
import { isRegistryError, type RegistryErrorCode } from "./errors.ts";
import { fakeServer, refuse } from "./fake-registry.test-kit.ts";
import { nextLink } from "./tags.ts";

const { signal } = new AbortController();

const links: [headers: string[], want: string | undefined][] = [
  [['</v2/a/tags/list?last=x&n=2>; rel="next"'], "/v2/a/tags/list?last=x&n=2"],
  [["</x>; rel=next"], "/x"],
  [['</x>; title="a, b"; rel="last next"'], "/x"],
  [['</first>; rel="first", </next>; rel="next"'], "/next"],
  [['</first>; rel="first"', '</next>;rel="next"'], "/next"],
  [['</x>; rel="nextish"'], undefined],
  [["</x>"], undefined],
  [[], undefined],
];
for (const [headers, want] of links) {
  test(`the next link of ${JSON.stringify(headers)} is ${want}`, () => assert.equal(nextLink(headers), want));
}

/** Pages by number: page 0 is the first answer. */
async function listed(pages: ((response: ServerResponse, origin: string) => void)[]) {
  let served = 0;
  const registry = await fakeServer((_request, response) => {
    const page = pages[Math.min(served, pages.length - 1)];
    served += 1;
    page?.(response, registry.url);
  });
  const client = createRegistryClient({ url: registry.url });
  try {
    return { tags: await client.listTags("a/b", signal), targets: registry.requests.map(({ target }) => target) };
  } finally {
    await client.close();
    await registry[Symbol.asyncDispose]();
  }
}

const page = (tags: unknown, link?: (origin: string) => string) => (response: ServerResponse, origin: string) => {
  const headers = link === undefined ? {} : { link: `<${link(origin)}>; rel="next"` };
  response.writeHead(200, headers).end(JSON.stringify({ name: "a/b", tags }));
};

test("pages are followed, relative and absolute, and a tag that shows twice is one", async () => {
  const { tags, targets } = await listed([
    page(["v1", "v2"], () => "/v2/a/b/tags/list?last=v2&n=2"),
    page(["v2", "v3"], (origin) => `${origin}/v2/a/b/tags/list?last=v3&n=2`),
    page(["v4"]),
  ]);
  assert.deepEqual(tags, ["v1", "v2", "v3", "v4"]);
  assert.deepEqual(targets, [
    "/v2/a/b/tags/list?n=1000",
    "/v2/a/b/tags/list?last=v2&n=2",
    "/v2/a/b/tags/list?last=v3&n=2",
  ]);
});

test("a repository without tags says null", async () => assert.deepEqual((await listed([page(null)])).tags, []));

test("only NAME_UNKNOWN is an empty answer", async () => {
  assert.deepEqual((await listed([(response) => refuse(response, 404, "NAME_UNKNOWN")])).tags, []);
});

// A listing that failed was once read as "no versions yet", and v1 was overwritten.
const failures: [name: string, pages: Parameters<typeof listed>[0], code: RegistryErrorCode][] = [
  ["another 404", [(response) => refuse(response, 404, "UNSUPPORTED")], "NotFound"],
  ["a 404 of some web server", [(response) => response.writeHead(404).end("nginx")], "NotFound"],
  ["a 403", [(response) => refuse(response, 403, "DENIED")], "Unauthorized"],
  ["a 500", [(response) => refuse(response, 500, "UNKNOWN")], "Unavailable"],
  ["a 400", [(response) => refuse(response, 400, "NAME_INVALID")], "Refused"],
  ["a page that is not JSON", [(response) => response.writeHead(200).end("<html>")], "Malformed"],
  ["tags that are no texts", [page([1])], "Malformed"],
  ["tags that are no list", [page("v1")], "Malformed"],
  [
    "a failure on the second page",
    [page(["v1"], () => "/v2/a/b/tags/list?last=v1"), (response) => refuse(response, 500, "UNKNOWN")],
    "Unavailable",
  ],
  [
    "a repository that vanishes on the second page",
    [page(["v1"], () => "/v2/a/b/tags/list?last=v1"), (response) => refuse(response, 404, "NAME_UNKNOWN")],
    "Malformed",
  ],
  ["a page that leads to itself", [page(["v1"], () => "/v2/a/b/tags/list?n=1000")], "Malformed"],
  ["a page of another repository", [page(["v1"], () => "/v2/c/d/tags/list?n=1000")], "Malformed"],
  ["a page on another host", [page(["v1"], () => "https://elsewhere.example/v2/a/b/tags/list")], "Malformed"],
];
for (const [name, pages, code] of failures) {
  test(`a listing that meets ${name} throws ${code}`, async () => {
    await assert.rejects(listed(pages), (error) => isRegistryError(error, code));
  });
}
