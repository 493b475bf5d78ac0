/** The engine's id lives with its containers (DESIGN §4.5): what an engine calls itself is never asked. */
import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { test } from "node:test";
import { isRuntimeError } from "../errors.ts";
import { createDockerDriver } from "./driver.ts";
import { engineVolumeName } from "./engine-marker.ts";
import { labelsOf } from "./labels.ts";
import { httpAnswer, scriptedEngine } from "./scripted-engine.test-kit.ts";

const { signal } = new AbortController();
const owner = { installation: "ours", namespace: "n", sandbox: "s", sandboxUid: "uid", boot: 1 };
const MARKER = engineVolumeName("ours");
const ENGINE = "agentworlds.dev/engine";

type Labels = Readonly<Record<string, string>>;

/** What an engine keeps in its data-root. */
interface Data {
  readonly volumes: Map<string, Labels>;
  readonly containers: Labels[];
  readonly captures: Labels[];
}
const emptyData = (): Data => ({ volumes: new Map(), containers: [], captures: [] });
const madeOn = (engine: string): Labels => ({ ...labelsOf(owner), [ENGINE]: engine });

/** An engine at one address whose data can be exchanged, with or without the connections noticing. */
async function engineWith(initial: Data) {
  const sockets = new Set<Socket>();
  let data = initial;
  const answer = ({ line, body }: { line: string; body: string }): string => {
    const [method, url = ""] = line.split(" ");
    const path = url.replace(/^\/v[\d.]+/, "").replace(/\?.*/, "");
    if (path === "/containers/json")
      return json(data.containers.map((Labels) => ({ Id: "i", State: "running", Image: "i", ImageID: "i", Labels })));
    if (path === "/images/json") return json(data.captures.map((Labels) => ({ Id: "i", Created: 0, Labels })));
    if (method === "POST" && path === "/volumes/create") {
      const { Name, Labels } = JSON.parse(body);
      if (!data.volumes.has(Name)) data.volumes.set(Name, Labels);
      return json({ Name });
    }
    const Labels = data.volumes.get(path.replace("/volumes/", ""));
    return Labels ? json({ Labels }) : httpAnswer(404, '{"message":"no such volume"}');
  };
  const engine = await scriptedEngine((request, socket) => {
    sockets.add(socket);
    socket.write(answer(request));
  });
  const drivers = new AsyncDisposableStack();
  return {
    /** A driver of a new process. */
    driver: () =>
      drivers.adopt(
        createDockerDriver({
          installation: "ours",
          endpoint: `unix://${engine.path}`,
          helper: () => Promise.reject(new TypeError("no container is made here")),
        }),
        (driver) => driver.close(),
      ),
    replace(by: Data) {
      data = by;
    },
    async cutConnections() {
      const closed = [...sockets].map((socket) => new Promise((resolve) => socket.once("close", resolve)));
      for (const socket of sockets) socket.destroy();
      sockets.clear();
      await Promise.all(closed);
    },
    async [Symbol.asyncDispose]() {
      await drivers.disposeAsync();
      await engine[Symbol.asyncDispose]();
    },
  };
}

const json = (value: unknown): string => httpAnswer(value === undefined ? 500 : 200, JSON.stringify(value));

test("every process and every connection reads the same id of one engine", async () => {
  await using engine = await engineWith(emptyData());
  const driver = engine.driver();
  const id = await driver.identity(signal);
  assert.match(id, /^[0-9a-f-]{36}$/);
  assert.equal(await engine.driver().identity(signal), id);
  await engine.cutConnections();
  assert.equal(await driver.identity(signal), id);
});

test("processes that make the marker at the same time agree", async () => {
  await using engine = await engineWith(emptyData());
  const ids = await Promise.all(Array.from({ length: 8 }, () => engine.driver().identity(signal)));
  assert.equal(new Set(ids).size, 1);
});

test("another engine behind the same address is another one, from the next connection on", async () => {
  await using engine = await engineWith(emptyData());
  const driver = engine.driver();
  const first = emptyData();
  engine.replace(first);
  const id = await driver.identity(signal);
  await engine.cutConnections();
  engine.replace(emptyData());
  assert.notEqual(await driver.identity(signal), id);
  await engine.cutConnections();
  engine.replace(first);
  assert.equal(await driver.identity(signal), id, "and it is itself again when it is back");
});

const remembering: readonly [what: string, left: Data][] = [
  ["a container", { ...emptyData(), containers: [madeOn("engine-a"), madeOn("engine-a")] }],
  ["a capture", { ...emptyData(), captures: [madeOn("engine-a")] }],
  [
    "a container among others of an older operator",
    { ...emptyData(), containers: [madeOn("engine-a"), labelsOf(owner)] },
  ],
];
for (const [what, left] of remembering)
  test(`a marker that was pruned is made anew as it was, where ${what} remembers it`, async () => {
    await using engine = await engineWith(left);
    assert.equal(await engine.driver().identity(signal), "engine-a");
    assert.equal(left.volumes.get(MARKER)?.[ENGINE], "engine-a");
  });

test("what is left of sessions and does not agree names nothing", async () => {
  const data = { ...emptyData(), containers: [madeOn("engine-a"), madeOn("engine-b")] };
  await using engine = await engineWith(data);
  assert.ok(!["engine-a", "engine-b"].includes(await engine.driver().identity(signal)));
});

test("a volume of that name that is not the operator's is refused by name, never believed", async () => {
  const data = emptyData();
  data.volumes.set(MARKER, {});
  await using engine = await engineWith(data);
  await assert.rejects(
    engine.driver().identity(signal),
    (error) => isRuntimeError(error, "HostRefused") && String(error).includes(MARKER),
  );
});
