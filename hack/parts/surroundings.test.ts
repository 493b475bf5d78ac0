// Seen: a TMPDIR with a space failed after 102 s, a long one after 22 s, a TMPDIR that is not there with a stack.
import assert from "node:assert/strict";
import { test } from "node:test";
import { addressTrouble, engineFolderTrouble, temporaryFolder } from "./surroundings.ts";

const tmp = (path: string) => ({ path, variable: "TMPDIR" });
const long = `/${"x".repeat(60)}`;

const folders: [promise: string, directory: string | undefined, tmpdir: string, sentence: RegExp | undefined][] = [
  ["an ordinary folder", undefined, "/tmp", undefined],
  ["a space in TMPDIR", undefined, "/tmp/a b", /^TMPDIR=\/tmp\/a b holds a space, .*: set TMPDIR to another folder/],
  ["a TMPDIR that is too long", undefined, long, /^TMPDIR=\/x+ is too long by 22 characters .*: set TMPDIR/],
  ["the longest TMPDIR that works", undefined, long.slice(0, 39), undefined],
  ["and one more", undefined, long.slice(0, 40), /too long by 1 characters/],
  ["a clone does not care for TMPDIR", "/repo/.local", "/tmp/a b", undefined],
  [
    "a space in the clone's path",
    "/re po/.local",
    "/tmp",
    /^\/re po\/\.local holds a space, .*: clone to another path$/,
  ],
  ["a clone's path that is too long", `${long}/.local`, "/tmp", /too long by 9 characters .*: clone to another path$/],
];
for (const [promise, directory, path, sentence] of folders) {
  test(`a private engine's folder: ${promise}`, () => {
    const said = engineFolderTrouble(directory, tmp(path));
    if (sentence === undefined) assert.equal(said, undefined);
    else assert.match(said ?? "", sentence);
  });
}

const addresses: [dockerHost: string, sentence: RegExp | undefined][] = [
  ["unix:///var/run/docker.sock", undefined],
  ["tcp://127.0.0.1:2375", undefined],
  ["/var/run/docker.sock", /^DOCKER_HOST=\/var\/run\/docker\.sock is neither unix:/],
  ["unix:///a b/docker.sock", /holds a space, .*: name the socket by another path$/],
];
for (const [dockerHost, sentence] of addresses) {
  test(`DOCKER_HOST=${dockerHost}`, () => {
    const said = addressTrouble(dockerHost);
    if (sentence === undefined) assert.equal(said, undefined);
    else assert.match(said ?? "", sentence);
  });
}

test("the variable that names the temporary folder is the one that is told", () => {
  assert.equal(temporaryFolder({ TMPDIR: "", TMP: "/x" }).variable, "TMP");
  assert.equal(temporaryFolder({}).variable, "TMPDIR");
});
