// The engine goes on with an exec start whose client hung up. A freeze that took it for a refusal paused the container under
// it: a helper that was being made ready for the next command, when a snapshot came, wedged container and host.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, request, type Server } from "node:http";
import { createConnection } from "node:net";
import { test } from "node:test";
import { z } from "zod";
import { callEngine, expectSuccess } from "../../../hack/parts/engine-api.ts";
import { createDockerDriver } from "../../../operator/src/runtime/docker/driver.ts";
import { loadHelper } from "../../../operator/src/runtime/helper.ts";
import { Bench } from "../../conformance/driver/bench.ts";
import { makeDocker } from "../../conformance/driver/docker.ts";

const TURNS = 6;
/** How long the busy engine takes to begin a start, unless a pause comes first. */
const BEGINS_AFTER_MS = 1_000;

/** What went through to the engine, in order. */
type Passed = "start" | "pause";

interface BusyEngine extends AsyncDisposable {
  readonly endpoint: string;
  /** Resolves when the next start has arrived, before the engine is told. */
  arrived(): Promise<void>;
  readonly passed: Passed[];
}

/**
 * The engine as it is on a busy host: it begins a start late, and does so whether or not the client is there still. A pause that
 * comes meanwhile reaches it together with the start.
 */
async function busyEngine(dockerHost: string): Promise<BusyEngine> {
  const path = /^unix:\/\/(.+)$/.exec(dockerHost)?.[1] ?? assert.fail(`${dockerHost} is no unix socket`);
  const passed: Passed[] = [];
  let onArrival = (): void => undefined;
  let begin = (): void => undefined;
  const server: Server = createServer((incoming, answer) => {
    const forward = () => {
      if (incoming.url?.endsWith("/pause")) passed.push("pause");
      const { method, url, headers } = incoming;
      const outgoing = request({ socketPath: path, method, path: url, headers }, (response) => {
        answer.writeHead(response.statusCode ?? 502, response.headers);
        response.pipe(answer);
      });
      // The engine is ended last: what breaks here is the client's own end.
      outgoing.on("error", () => answer.destroy());
      incoming.pipe(outgoing);
    };
    if (!incoming.url?.endsWith("/pause")) return forward();
    begin();
    // So that the engine is in the midst of the start.
    setTimeout(forward, 5);
  });
  server.on("upgrade", (incoming, near, head) => {
    near.on("error", () => undefined);
    const timer = setTimeout(() => begin(), BEGINS_AFTER_MS);
    begin = () => {
      clearTimeout(timer);
      begin = () => undefined;
      passed.push("start");
      const far = createConnection({ path, allowHalfOpen: true });
      far.on("error", () => near.destroy());
      const { method, url, rawHeaders } = incoming;
      const headers = rawHeaders.flatMap((name, at) => (at % 2 === 0 ? [`${name}: ${rawHeaders[at + 1]}\r\n`] : []));
      far.write(`${method} ${url} HTTP/1.1\r\n${headers.join("")}\r\n`);
      far.write(head);
      near.pipe(far);
      far.pipe(near);
      if (near.destroyed) far.end();
    };
    onArrival();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  assert.ok(address !== null && typeof address === "object");
  return {
    endpoint: `tcp://127.0.0.1:${address.port}`,
    passed,
    arrived: () =>
      new Promise((resolve) => {
        onArrival = resolve;
      }),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

const container = z.object({ ExecIDs: z.array(z.string()).nullish() });
const exec = z.object({ Running: z.boolean(), Pid: z.number() });

/** Execs that the engine is still starting, as its own records say; an engine that is wedged does not answer. */
async function starting(dockerHost: string, id: string): Promise<string[]> {
  const look = async (path: string): Promise<unknown> => {
    const answer = await callEngine(dockerHost, { path, signal: AbortSignal.timeout(10_000) });
    return JSON.parse(expectSuccess(path, answer));
  };
  const found: string[] = [];
  for (const one of container.parse(await look(`/containers/${id}/json`)).ExecIDs ?? []) {
    const { Running, Pid } = exec.parse(await look(`/exec/${one}/json`));
    if (Running && Pid === 0) found.push(one);
  }
  return found;
}

test("a command that is given up while it starts is waited for by the freeze that follows", async () => {
  await using under = await makeDocker();
  await using bench = new Bench(under);
  const id = await bench.create();
  await using busy = await busyEngine(under.dockerHost);
  const driver = createDockerDriver({
    installation: under.installation,
    endpoint: busy.endpoint,
    helper: (platform, signal) => loadHelper({ platform }, signal),
  });
  await using _ = { [Symbol.asyncDispose]: () => driver.close() };
  const signal = AbortSignal.timeout(240_000);
  for (let turn = 0; turn < TURNS; turn++) {
    busy.passed.length = 0;
    const caller = new AbortController();
    const arrived = busy.arrived();
    const command = assert.rejects(driver.exec(id, { command: ["true"] }, caller.signal), /hung up/);
    await arrived;
    caller.abort(new Error("the client hung up"));
    await command;
    await driver.freeze(id, signal);
    assert.deepEqual(await starting(under.dockerHost, id), [], "frozen under a start");
    assert.deepEqual(busy.passed, ["start", "pause"]);
    await driver.thaw(id, signal);
    assert.equal((await under.driver.exec(id, { command: ["echo", "alive"] }, signal)).exitCode, 0);
  }
});
