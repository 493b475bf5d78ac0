/** An alias of the installation's registry opens no World of another namespace. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isOwnRepository, readsOwnRepository } from "./own-repositories.ts";
import { parseReference } from "./reference.ts";
import { DEVELOPMENT_SOURCES, judgeReference, judgeUrl } from "./source-policy.ts";

const of = (...registries: string[]) => ({ registries, prefix: "worlds", installation: "cluster-a" });

/** Names of one place; each of them is the own registry's, under each of them it is asked. */
const places: Record<string, string[]> = {
  "a host": ["registry.example.com", "registry.example.com:443", "registry.example.com:80", "REGISTRY.Example.com"],
  "a host with a port": ["registry.example.com:5000", "Registry.example.COM:5000", "registry.example.com:05000"],
  "this machine": [
    "127.0.0.1:5055",
    "localhost:5055",
    "LOCALHOST:5055",
    "r.localhost:5055",
    "127.0.0.2:5055",
    "127.1:5055",
    "0x7f.1:5055",
    "2130706433:5055",
    "0.0.0.0:5055",
    "[::1]:5055",
    "[0:0:0:0:0:0:0:1]:5055",
    "[::ffff:127.0.0.1]:5055",
    "[::127.0.0.1]:5055",
    "[::]:5055",
  ],
  "Docker Hub": ["docker.io", "index.docker.io", "registry-1.docker.io", "registry-1.docker.io:443"],
};
for (const [place, names] of Object.entries(places)) {
  for (const own of names) {
    test(`${place}: ${own} is the installation's registry under every name`, () => {
      for (const name of names) {
        const reference = parseReference(`${name}/worlds/cluster-b/team/lab-1234:v1`);
        assert.ok(isOwnRepository(of(own), reference), `${name} is not taken for ${own}`);
      }
    });
  }
}

test("a final dot is part of no other host's name", () => {
  const reference = { registry: "registry.example.com.", repository: "worlds/team/lab" };
  assert.ok(isOwnRepository(of("registry.example.com"), reference));
  assert.ok(isOwnRepository(of("registry.example.com.:443"), { ...reference, registry: "registry.example.com" }));
});

test("the repositories of the installation are none on any host: a name in DNS may lead to the own registry", () => {
  for (const host of ["alias.example.com", "10.1.2.3:5000", "docker.io"]) {
    const judge = (repository: string) =>
      judgeReference(
        { ...DEVELOPMENT_SOURCES, ranges: ["10.0.0.0/8"], own: of("registry.example.com", "hosts.example:5000") },
        parseReference(`${host}/${repository}`),
      ).kind;
    assert.equal(judge("worlds/cluster-a/team/lab-1234:v1"), "refused");
    assert.equal(judge("worlds/cluster-a/team/lab/lineages:0a1b2c3d"), "refused");
    assert.equal(judge("worlds/cluster-a-b/tools"), "allowed");
    assert.equal(judge("worlds/cluster-b/team/lab-1234"), "allowed");
    assert.equal(judge("mirror/tools"), "allowed");
  }
});

test("another port, another host and another path are other registries' business", () => {
  const own = of("registry.example.com", "127.0.0.1:5055");
  for (const text of [
    "registry.example.com:5000/worlds/x/y",
    "registry.example.org/worlds/x/y",
    "localhost:5056/worlds/x/y",
    "registry.example.com/worldsend/x",
    "registry.example.com/base/worlds/x",
  ]) {
    assert.ok(!isOwnRepository(own, parseReference(text)), text);
  }
});

test("a source may not redirect there either", () => {
  const policy = { ...DEVELOPMENT_SOURCES, own: of("127.0.0.1:5055") };
  const judge = (url: string) => judgeUrl(policy, new URL(url)).kind;
  assert.equal(judge("http://127.0.0.1:5055/v2/worlds/cluster-a/team/lab-1234/manifests/v1"), "refused");
  assert.equal(judge("https://alias.example.com/v2/worlds/cluster-a/team/lab-1234/blobs/sha256:00"), "refused");
  assert.equal(judge("http://127.0.0.1:5055/v2/%77orlds/cluster%2Da%2fteam/lab-1234/manifests/v1"), "refused");
  assert.equal(judge("http://127.0.0.1:5055/mirror/v2/worlds/cluster-a/team/lab/manifests/v1"), "refused");
  assert.equal(judge("https://cdn.example.com/blobs/%ff/00"), "allowed");
  assert.ok(!readsOwnRepository(policy.own, new URL("http://127.0.0.1:5055/v2/base/tools/manifests/1")));
});
