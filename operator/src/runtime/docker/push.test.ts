import assert from "node:assert/strict";
import { test } from "node:test";
import { createDockerDriver } from "./driver.ts";
import { httpAnswer, scriptedEngine } from "./scripted-engine.test-kit.ts";

const { signal } = new AbortController();
const PUSHED = httpAnswer(200, '{"status":"ok"}\n');
const REFUSED = httpAnswer(200, '{"error":"denied: no space left in the registry"}\n');
const NO_CONTENT = "HTTP/1.1 204 No Content\r\n\r\n";
const BUSY = httpAnswer(500, '{"message":"image is being used"}');

/** Pushes against an engine that answers the push and the removal of the name as given. */
async function push(pushAnswer: string, untagAnswer: string): Promise<unknown> {
  await using engine = await scriptedEngine(({ line }, socket) => {
    if (line.startsWith("DELETE")) socket.write(untagAnswer);
    else socket.write(line.includes("/push?") ? pushAnswer : NO_CONTENT);
  });
  const driver = createDockerDriver({
    installation: "i",
    endpoint: `unix://${engine.path}`,
    helper: () => Promise.reject(new TypeError("no container is made here")),
  });
  try {
    await driver.push("agentworlds/capture:o", { repository: "r.example/w", tag: "t", login: undefined }, signal);
    return "pushed";
  } catch (error) {
    return error;
  } finally {
    await driver.close();
  }
}

test("a push that is refused says why, also when its local name cannot be removed", async () => {
  for (const untag of [NO_CONTENT, BUSY])
    assert.match(String(await push(REFUSED, untag)), /not pushed: .*no space left/);
});

test("a local name that stays after the push is a failure of the host, not of the push", async () => {
  assert.equal(await push(PUSHED, NO_CONTENT), "pushed");
  assert.match(String(await push(PUSHED, BUSY)), /image is being used/);
  assert.doesNotMatch(String(await push(PUSHED, BUSY)), /not pushed/);
});

test("an engine that goes on trying is not waited for: one retry, and then it is said", async () => {
  const counting = (...seconds: number[]) =>
    seconds.map((left) => `{"status":"Retrying in ${left} second${left === 1 ? "" : "s"}","id":"layer"}\n`).join("");
  const endless = (text: string) => `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${chunk(text)}`;
  assert.match(
    String(await push(endless(counting(5, 4, 3, 2, 1, 10)), NO_CONTENT)),
    /PushFailed|not pushed: .*Retrying/,
  );
  const healed = `${counting(5, 4, 3, 2, 1)}{"status":"Pushed","id":"layer"}\n`;
  assert.equal(await push(httpAnswer(200, healed), NO_CONTENT), "pushed");
});

const chunk = (text: string): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
