import assert from "node:assert/strict";
import { test } from "node:test";
import { findLogin, parseDockerConfig } from "./docker-config.ts";
import { isRegistryError, RegistryError } from "./errors.ts";

const base64 = (text: string) => Buffer.from(text).toString("base64");
const login = (username: string) => ({ auth: base64(`${username}:secret`) });

const cases: [
  name: string,
  auths: Record<string, object>,
  wanted: [registry: string, repository: string],
  username: string | undefined,
][] = [
  ["a bare host", { "ghcr.io": login("u") }, ["ghcr.io", "a/b"], "u"],
  ["a host with scheme", { "https://ghcr.io": login("u") }, ["ghcr.io", "a/b"], "u"],
  ["a host with scheme and version", { "https://ghcr.io/v2/": login("u") }, ["ghcr.io", "a/b"], "u"],
  [
    "the way docker login writes Docker Hub",
    { "https://index.docker.io/v1/": login("u") },
    ["docker.io", "library/x"],
    "u",
  ],
  ["Docker Hub by its wire name", { "docker.io": login("u") }, ["registry-1.docker.io", "library/x"], "u"],
  ["a port must be the same", { "host:5000": login("u") }, ["host:5001", "x"], undefined],
  ["a port must not be missing", { host: login("u") }, ["host:5000", "x"], undefined],
  ["another host", { "ghcr.io": login("u") }, ["evil-ghcr.io", "x"], undefined],
  ["a path", { "ghcr.io/team": login("u") }, ["ghcr.io", "team/x"], "u"],
  ["a path ends at a component", { "ghcr.io/team": login("u") }, ["ghcr.io", "teamster/x"], undefined],
  [
    "the longest path wins",
    { "ghcr.io": login("all"), "ghcr.io/team/x": login("one"), "ghcr.io/team": login("team") },
    ["ghcr.io", "team/x"],
    "one",
  ],
  ["a pattern", { "*.example.com": login("u") }, ["registry.example.com", "x"], "u"],
  ["a pattern is one label", { "*.example.com": login("u") }, ["a.b.example.com", "x"], undefined],
  [
    "an exact host before a pattern",
    { "*.example.com/x": login("p"), "r.example.com": login("e") },
    ["r.example.com", "x"],
    "e",
  ],
  ["username and password in full", { "ghcr.io": { username: "u", password: "secret" } }, ["ghcr.io", "x"], "u"],
  [
    "username and password before auth",
    { "ghcr.io": { username: "u", password: "secret", auth: base64("other:x") } },
    ["ghcr.io", "x"],
    "u",
  ],
  ["no entries", {}, ["ghcr.io", "x"], undefined],
];
for (const [name, auths, [registry, repository], username] of cases) {
  test(`docker config: ${name}`, () => {
    const found = findLogin(parseDockerConfig(JSON.stringify({ auths })), registry, repository);
    assert.deepEqual(found, username === undefined ? undefined : { username, password: "secret" });
  });
}

test("a password may hold colons", () => {
  const config = parseDockerConfig(JSON.stringify({ auths: { "ghcr.io": { auth: base64("u:a:b:c") } } }));
  assert.deepEqual(findLogin(config, "ghcr.io", "x"), { username: "u", password: "a:b:c" });
});

test("an entry with an identity token is named, not passed over in silence", () => {
  const config = parseDockerConfig(JSON.stringify({ auths: { "ghcr.io": { identitytoken: "t" } } }));
  assert.throws(() => findLogin(config, "ghcr.io", "x"), /ghcr\.io hold no username and password/);
});

const broken: [name: string, text: string][] = [
  ["no JSON", "hunter2"],
  ["cut-off JSON", '{"auths":{"ghcr.io":{"password":"hunter2"'],
  ["a wrong type", '{"auths":{"ghcr.io":{"username":"u","password":["hunter2"]}}}'],
  ["auth without a colon", JSON.stringify({ auths: { "ghcr.io": { auth: base64("hunter2") } } })],
  ["auth without a username", JSON.stringify({ auths: { "ghcr.io": { auth: base64(":hunter2") } } })],
];
for (const [name, text] of broken) {
  test(`a broken docker config is refused without quoting it: ${name}`, () => {
    assert.throws(
      () => parseDockerConfig(text),
      (error) => {
        assert.ok(isRegistryError(error, "Refused") && error instanceof RegistryError);
        const shown = `${error.message} ${String(error.cause)}`;
        return !shown.includes("hunter2") && !shown.includes(base64("hunter2"));
      },
    );
  });
}
