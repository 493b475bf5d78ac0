import assert from "node:assert/strict";
import { test } from "node:test";
import { ConfigurationError } from "./errors.ts";
import { nameForKey, segment } from "./naming.ts";

const hello = { kind: "World", name: "hello" } as const;

test("a key is one name, today and in another process", () => {
  assert.equal(nameForKey(hello, "conversation-7"), "hello-650572fb97");
});

test("another key, another World or an image of the World's name is another name", () => {
  const names = [
    nameForKey(hello, "a"),
    nameForKey(hello, "b"),
    nameForKey({ kind: "World", name: "hello2" }, "a"),
    nameForKey({ kind: "Image", name: "hello" }, "a"),
  ];
  assert.equal(new Set(names).size, names.length);
});

for (const world of ["a".repeat(63), `${"a".repeat(51)}-${"b".repeat(11)}`, "with.dots", "w"]) {
  test(`the name made for World ${world} is one that Kubernetes allows`, () => {
    const name = nameForKey({ kind: "World", name: world }, "ключ \u{1f511}");
    assert.match(name, /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/);
    assert.ok(name.length <= 63, `${name.length}`);
    assert.doesNotMatch(name, /--/);
  });
}

test("an image's name is not part of the Sandbox's", () => {
  assert.match(nameForKey({ kind: "Image", name: "registry.example/Team/Image:1" }, "a"), /^sandbox-[0-9a-f]{10}$/);
});

for (const name of ["..", ".", "", "a/b", "A", "a..b", "-a", "a%2f", "a".repeat(254)]) {
  test(`${JSON.stringify(name.slice(0, 8))} never becomes part of a path`, () => {
    assert.throws(() => segment(name), ConfigurationError);
  });
}
