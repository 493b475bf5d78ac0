import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { buffer, text } from "node:stream/consumers";
import { test } from "node:test";
import { answer, fakeServer, type Seen, status } from "../../test/fake-server.ts";
import { AgentWorlds } from "../client.ts";
import { run } from "./main.ts";

const BASE = "/apis/sessions.agentworlds.dev/v1alpha1/namespaces/team/worlds/lab";
const rescue = (operation: string) => ({
  operation,
  sandbox: { name: "one", uid: "uid" },
  runtime: "local",
  host: "a",
  computeId: "aw-uid-1",
  reason: "SnapshotFailed",
  message: "no registry",
  since: "2026-01-01T00:00:00Z",
});

/** Runs the plugin against a server whose answers the test decides. */
async function runWith(args: string, script: (seen: Seen, response: ServerResponse) => void) {
  await using server = await fakeServer(({ seen, response }) => script(seen, response));
  const { url, caPem: ca } = server;
  await using client = new AgentWorlds({ server: url, token: "t", ca, namespace: "team" });
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const { signal } = new AbortController();
  const code = await run(args.split(" "), { stdout, stderr, signal, rescues: client.worlds.rescues });
  stdout.end();
  stderr.end();
  return { code, out: await buffer(stdout), err: await text(stderr), seen: server.seen };
}

const listOf = (...operations: string[]) => ({ rescues: operations.map(rescue), lostWork: [] });

test("list prints what is kept", async () => {
  const { code, out, seen } = await runWith("rescue list lab", (_, response) => answer(response, 200, listOf("op-1")));
  assert.equal(code, 0);
  assert.match(out.toString(), /op-1 +one +local\/a/);
  assert.deepEqual([seen[0]?.method, seen[0]?.url], ["GET", `${BASE}/rescues`]);
});

test("retry without an operation takes the only rescue, asks with one id until it is done, and prints the version", async () => {
  let asks = 0;
  const { code, out, seen } = await runWith("rescue retry lab", ({ method }, response) => {
    if (method === "GET") return answer(response, 200, listOf("op-1"));
    asks++;
    if (asks === 1) return answer(response, 202, { id: "x", done: false });
    return answer(response, 200, { id: "x", done: true, outcome: "Succeeded", version: 7, digest: "sha256:d" });
  });
  assert.equal(code, 0);
  assert.equal(out.toString(), "rescue op-1 is version 7 (sha256:d)\n");
  const [first, second] = seen.slice(1).map(({ body }) => JSON.parse(body));
  assert.deepEqual(first, second, "the same wish, not a second one");
  assert.deepEqual([first.verb, first.operation], ["Retry", "op-1"]);
});

test("retry without an operation names them where there are several, and asks for nothing", async () => {
  const { code, err, seen } = await runWith("rescue retry lab", (_, response) =>
    answer(response, 200, listOf("op-1", "op-2")),
  );
  assert.equal(code, 1);
  assert.match(err, /has 2 rescues; name one of op-1, op-2/);
  assert.equal(seen.length, 1);
});

test("export prints the image and nothing else, so that a shell can use it", async () => {
  const { out } = await runWith("rescue export lab op-1", (_, response) =>
    answer(response, 200, { id: "x", done: true, outcome: "Succeeded", image: "r/w@sha256:d", digest: "sha256:d" }),
  );
  assert.equal(out.toString(), "r/w@sha256:d\n");
});

test("what the controller could not do is told with its words, and ends with 1", async () => {
  const details = { code: "RetryFailed", cause: "the registry does not answer", remediation: "ask again" };
  const { code, err } = await runWith("rescue retry lab op-1", (_, response) =>
    answer(response, 500, status(500, details)),
  );
  assert.equal(code, 1);
  // Seen: each sentence twice, since a gateway's message holds cause and remediation.
  assert.equal(err.split("the registry does not answer").length, 2, err);
  assert.equal(err.split("ask again").length, 2, err);
});

test("discard sends the operation it was given", async () => {
  const { code, seen } = await runWith("rescue discard lab op-1", (_, response) =>
    answer(response, 200, { id: "x", done: true, outcome: "Succeeded" }),
  );
  assert.equal(code, 0);
  const { verb, operation } = JSON.parse(seen[0]?.body ?? "{}");
  assert.deepEqual([verb, operation], ["Discard", "op-1"]);
});

const ARCHIVE = Buffer.concat([Buffer.alloc(512, 1), Buffer.alloc(1_024)]);

test("an archive goes to stdout byte for byte", async () => {
  const { code, out, seen } = await runWith("rescue export lab op-1 --tar -", (_, response) => {
    response.writeHead(200, { "content-type": "application/x-tar" });
    response.end(ARCHIVE);
  });
  assert.equal(code, 0);
  assert.deepEqual(out, ARCHIVE);
  assert.equal(seen[0]?.url, `${BASE}/proxy/rescues/op-1.tar`);
});

const cuts: [name: string, cut: (response: ServerResponse) => void][] = [
  ["whose connection breaks", (response) => response.write(ARCHIVE.subarray(0, 600), () => response.destroy())],
  ["that some hop ends in order before its end", (response) => response.end(ARCHIVE.subarray(0, 600))],
];
for (const [name, cut] of cuts) {
  test(`an archive ${name} leaves no file and is an error`, async () => {
    const directory = mkdtempSync(join(tmpdir(), "rescue-"));
    try {
      const path = join(directory, "work.tar");
      const { code, err } = await runWith(`rescue export lab op-1 --tar ${path}`, (_, response) => {
        response.writeHead(200, { "content-type": "application/x-tar" });
        cut(response);
      });
      assert.equal(code, 1);
      assert.notEqual(err, "");
      assert.deepEqual([existsSync(path), existsSync(`${path}.part`)], [false, false]);
    } finally {
      rmSync(directory, { recursive: true });
    }
  });
}

test("an archive that is whole is in its file", async () => {
  const directory = mkdtempSync(join(tmpdir(), "rescue-"));
  try {
    const path = join(directory, "work.tar");
    const { code } = await runWith(`rescue export lab op-1 --tar ${path}`, (_, response) => {
      response.writeHead(200, { "content-type": "application/x-tar" });
      response.end(ARCHIVE);
    });
    assert.equal(code, 0);
    assert.deepEqual(readFileSync(path), ARCHIVE);
  } finally {
    rmSync(directory, { recursive: true });
  }
});

test("a command line that cannot be understood ends with 2 and asks nobody", async () => {
  const { code, err, seen } = await runWith("rescue discard lab", () => assert.fail("nobody is asked"));
  assert.equal(code, 2);
  assert.match(err, /never guessed/);
  assert.equal(seen.length, 0);
});
