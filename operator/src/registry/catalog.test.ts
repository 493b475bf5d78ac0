import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { test } from "node:test";
import fc from "fast-check";
import { isPast } from "./catalog.ts";
import { createRegistryClient } from "./client.ts";
import { isRegistryError, type RegistryErrorCode } from "./errors.ts";
import { fakeServer, refuse } from "./fake-registry.test-kit.ts";

const { signal } = new AbortController();
const PREFIX = "worlds/i/team/lab-";

type Page = (response: ServerResponse, origin: string) => void;

async function listed(pages: Page[]) {
  let served = 0;
  await using registry = await fakeServer((_request, response) => {
    const page = pages[Math.min(served, pages.length - 1)];
    served += 1;
    page?.(response, registry.url);
  });
  const client = createRegistryClient({ url: registry.url });
  try {
    const names = await client.listRepositories(PREFIX, signal);
    return { names, targets: registry.requests.map(({ target }) => target) };
  } finally {
    await client.close();
  }
}

const page =
  (repositories: unknown, link?: (origin: string) => string): Page =>
  (response, origin) => {
    const headers = link === undefined ? {} : { link: `<${link(origin)}>; rel="next"` };
    response.writeHead(200, headers).end(JSON.stringify({ repositories }));
  };
const next = (name: string) => () => `/v2/_catalog?last=${encodeURIComponent(name)}&n=100`;

test("the listing begins at the prefix and ends where the registry has gone past it", async () => {
  const { names, targets } = await listed([
    page([`${PREFIX}1`, `${PREFIX}2`], next(`${PREFIX}2`)),
    page([`${PREFIX}3`, "worlds/i/team/lib-1"], next("worlds/i/team/lib-1")),
    page(["worlds/i/team/zoo-1"]),
  ]);
  assert.deepEqual(names, [`${PREFIX}1`, `${PREFIX}2`, `${PREFIX}3`]);
  assert.deepEqual(targets, [
    "/v2/_catalog?n=100&last=worlds%2Fi%2Fteam%2Flab-",
    "/v2/_catalog?last=worlds%2Fi%2Fteam%2Flab-2&n=100",
  ]);
});

test("a registry that does not begin at the prefix, or lists in no order, is read to its end", async () => {
  const { names } = await listed([
    page(["a/b", "worlds/i/team/zoo-1"], next("x")),
    page(["b/c"], next("y")),
    page([`${PREFIX}9`]),
  ]);
  assert.deepEqual(names, [`${PREFIX}9`]);
});

test("a registry without a catalog says so; one without repositories has none", async () => {
  for (const status of [404, 405, 501]) {
    assert.equal((await listed([(response) => refuse(response, status, "UNSUPPORTED")])).names, "NoCatalog");
  }
  assert.deepEqual((await listed([page([])])).names, []);
  assert.deepEqual((await listed([page(null)])).names, []);
});

const failures: [name: string, pages: Page[], code: RegistryErrorCode][] = [
  ["a 500", [(response) => refuse(response, 500, "UNKNOWN")], "Unavailable"],
  ["a 401", [(response) => refuse(response, 401, "UNAUTHORIZED")], "Unauthorized"],
  ["a 403", [(response) => refuse(response, 403, "DENIED")], "Unauthorized"],
  ["a 400", [(response) => refuse(response, 400, "PAGINATION_NUMBER_INVALID")], "Refused"],
  ["a page that is no JSON", [(response) => response.writeHead(200).end("<html>")], "Malformed"],
  ["names that are no texts", [page([1])], "Malformed"],
  [
    "a 500 on the second page",
    [page([`${PREFIX}1`], next("x")), (response) => refuse(response, 500, "X")],
    "Unavailable",
  ],
  [
    "a 404 on the second page",
    [page([`${PREFIX}1`], next("x")), (response) => refuse(response, 404, "X")],
    "Malformed",
  ],
  ["a page that leads to itself", [page([`${PREFIX}1`], next("x"))], "Malformed"],
  ["a page on another host", [page([`${PREFIX}1`], () => "https://elsewhere.example/v2/_catalog")], "Malformed"],
  ["a page of something else", [page([`${PREFIX}1`], () => "/v2/a/tags/list")], "Malformed"],
];
for (const [name, pages, code] of failures) {
  test(`a listing that meets ${name} throws ${code}: it never looks like "there are none"`, async () => {
    await assert.rejects(listed(pages), (error) => isRegistryError(error, code));
  });
}

test("the token for the catalog is asked for as the catalog's", async () => {
  const scopes: (string | null)[] = [];
  await using registry = await fakeServer(({ target, headers }, response) => {
    const url = new URL(target, registry.url);
    if (url.pathname === "/token") {
      scopes.push(url.searchParams.get("scope"));
      response.writeHead(200).end('{"token":"t"}');
    } else if (headers.authorization === undefined) {
      const challenge = `Bearer realm="${registry.url}/token",service="s",scope="registry:catalog:*"`;
      response.writeHead(401, { "www-authenticate": challenge }).end();
    } else page([`${PREFIX}1`])(response, registry.url);
  });
  const client = createRegistryClient({ url: registry.url });
  try {
    assert.deepEqual(await client.listRepositories(PREFIX, signal), [`${PREFIX}1`]);
    assert.deepEqual(scopes, ["registry:catalog:*"]);
  } finally {
    await client.close();
  }
});

test("no order in which a registry may list hides a name behind the end of a page", () => {
  const part = fc.constantFrom("a", "lab", "lab-1", "lab-2", "lib", "z", "lab-");
  const names = fc.uniqueArray(fc.array(part, { minLength: 1, maxLength: 3 }).map((parts) => parts.join("/")));
  const orders = [(name: string) => name, (name: string) => name.replaceAll("/", "\0")];
  fc.assert(
    fc.property(names, fc.constantFrom(...orders), fc.nat(8), (all, key, size) => {
      const after = all.filter((name) => key(name) > key("lab-")).sort((a, b) => (key(a) < key(b) ? -1 : 1));
      const shown = after.slice(0, size);
      if (!isPast(shown, "lab-")) return;
      assert.ok(!after.slice(size).some((name) => name.startsWith("lab-")));
    }),
  );
});
