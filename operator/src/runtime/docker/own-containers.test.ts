import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { test } from "node:test";
import { isRuntimeError } from "../errors.ts";
import { createDockerDriver } from "./driver.ts";
import { labelsOf } from "./labels.ts";
import { httpAnswer, scriptedEngine } from "./scripted-engine.test-kit.ts";

const NAME = "aw-uid-1";
const { signal } = new AbortController();
const ours = labelsOf({ installation: "ours", namespace: "n", sandbox: "s", sandboxUid: "uid", boot: 1 });

interface Found {
  readonly id: string;
  readonly labels: Readonly<Record<string, string>>;
}

/** An engine with at most one container under the name; answers every other call with 204. */
async function engineWith(initial: Found | undefined) {
  const calls: string[] = [];
  let container = initial;
  const answer = (line: string): string => {
    const [method, url = ""] = line.split(" ");
    const path = url.replace(/^\/v[\d.]+/, "");
    calls.push(`${method} ${path}`);
    const subject = /^\/containers\/([^/?]+)/.exec(path)?.[1];
    const found = container !== undefined && (subject === NAME || subject === container.id) ? container : undefined;
    if (subject !== undefined && found === undefined) return httpAnswer(404, '{"message":"No such container"}');
    if (!path.endsWith("/json")) return "HTTP/1.1 204 No Content\r\n\r\n";
    const State = { Status: "running", ExitCode: 0, OOMKilled: false, StartedAt: "", FinishedAt: "" };
    return httpAnswer(200, JSON.stringify({ Id: found?.id, Image: "i", Config: { Labels: found?.labels }, State }));
  };
  const engine = await scriptedEngine(({ line }, socket: Socket) => void socket.write(answer(line)));
  const driver = createDockerDriver({
    installation: "ours",
    endpoint: `unix://${engine.path}`,
    helper: () => Promise.reject(new TypeError("no container is made here")),
  });
  return {
    driver,
    calls,
    replace(by: Found | undefined) {
      container = by;
      calls.length = 0;
    },
    async [Symbol.asyncDispose]() {
      await driver.close();
      await engine[Symbol.asyncDispose]();
    },
  };
}

test("a name is resolved once, and effects act on the Id", async () => {
  await using engine = await engineWith({ id: "id1", labels: ours });
  await engine.driver.freeze(NAME, signal);
  await engine.driver.thaw(NAME, signal);
  assert.deepEqual(engine.calls, [
    `GET /containers/${NAME}/json`,
    // Before a freeze the engine is asked for execs on their way.
    "GET /containers/id1/json",
    "POST /containers/id1/pause",
    "POST /containers/id1/unpause",
    // After a thaw the engine is looked at twice: its own event of the pause may come late.
    "GET /containers/id1/json",
    "GET /containers/id1/json",
  ]);
});

test("a container of ours that was made anew under the name is found again", async () => {
  await using engine = await engineWith({ id: "id1", labels: ours });
  await engine.driver.freeze(NAME, signal);
  engine.replace({ id: "id2", labels: ours });
  await engine.driver.freeze(NAME, signal);
  assert.deepEqual(engine.calls, [
    "GET /containers/id1/json",
    `GET /containers/${NAME}/json`,
    "GET /containers/id2/json",
    "POST /containers/id2/pause",
  ]);
});

const foreign: [whose: string, labels: Readonly<Record<string, string>>][] = [
  ["nobody's", {}],
  ["another installation's", { ...ours, "agentworlds.dev/installation": "theirs" }],
  ["another Sandbox's", { ...ours, "agentworlds.dev/sandbox-uid": "other" }],
  ["another boot's", { ...ours, "agentworlds.dev/boot": "2" }],
];
for (const [whose, labels] of foreign)
  for (const known of [false, true])
    test(`a container of the name that is ${whose} is absent and not acted on, ${known ? "also after ours had the name" : "at first sight"}`, async () => {
      await using engine = await engineWith(known ? { id: "id1", labels: ours } : undefined);
      if (known) await engine.driver.freeze(NAME, signal);
      engine.replace({ id: "id2", labels });
      const { driver } = engine;
      assert.deepEqual(await driver.inspect(NAME, signal), { state: "Absent" });
      const acts = [
        () => driver.exec(NAME, { command: ["true"] }, signal),
        () => driver.readFile(NAME, Buffer.from("/f"), signal),
        () => driver.freeze(NAME, signal),
        () => driver.thaw(NAME, signal),
        () => driver.commit(NAME, "agentworlds/capture:o", signal),
        () => driver.stop(NAME, signal),
      ];
      for (const act of acts) await assert.rejects(act, (error) => isRuntimeError(error, "ComputeNotFound"));
      await driver.remove(NAME, signal);
      assert.deepEqual(
        engine.calls.filter((call) => !call.startsWith("GET ") && !call.includes("/containers/id1/")),
        [],
      );
    });
