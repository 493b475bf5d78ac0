import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { dirname } from "node:path";
import { test } from "node:test";
import { startPrivateEngine } from "../../../hack/parts/engine.ts";
import { callEngine, expectSuccess } from "../../../hack/parts/engine-api.ts";
import { baseImage, type Engine, engine, eventually, registry, whyNoOwnEngine } from "../../kit/index.ts";
import { engineState, leftoversOf, nothing, nothingOutside, outsideEngine } from "./leftovers.ts";

const limit = (): AbortSignal => AbortSignal.timeout(60_000);

function directoryOf(one: Engine): string {
  return dirname(one.dockerHost.replace("unix://", ""));
}

async function post(one: Engine, path: string, body: object = {}): Promise<string> {
  const answer = await callEngine(one.dockerHost, {
    method: "POST",
    path,
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal: limit(),
  });
  return expectSuccess(`POST ${path}`, answer);
}

test("a private engine runs containers on its own network, and takes everything with it when it ends", {
  skip: whyNoOwnEngine(),
}, async () => {
  await using own = await engine({ own: true });
  await using place = await registry();
  const directory = directoryOf(own);
  const state = await engineState(directory);
  {
    await using image = await baseImage("busybox", { engine: own, registry: place });
    await post(own, "/networks/create", { Name: "apart" });
    const created = await post(own, "/containers/create?name=worker", {
      Image: image.reference,
      Cmd: ["sleep", "600"],
      HostConfig: { NetworkMode: "apart", PortBindings: { "80/tcp": [{ HostIp: "127.0.0.1", HostPort: "0" }] } },
    });
    assert.match(created, /"Id":"[0-9a-f]{64}"/);
    await post(own, "/containers/worker/start");
    const running = await outsideEngine(state, limit());
    // Else the emptiness below would prove nothing.
    assert.equal(running.links.length, 2);
    assert.ok(running.rules.length > 4);
    assert.ok(running.cgroups.length > 0);
    assert.ok((await leftoversOf(directory)).mounts.length > 0);
  }
  await own[Symbol.asyncDispose]();
  assert.deepEqual(await leftoversOf(directory), nothing);
  assert.deepEqual(await outsideEngine(state, limit()), nothingOutside);
});

test("two engines run side by side: neither the second's start nor its end takes rules from the first", {
  skip: whyNoOwnEngine(),
}, async () => {
  await using first = await engine({ own: true });
  const state = await engineState(directoryOf(first));
  const rules = (await outsideEngine(state, limit())).rules.toSorted();
  const second = await engine({ own: true });
  assert.deepEqual((await outsideEngine(state, limit())).rules.toSorted(), rules);
  await second[Symbol.asyncDispose]();
  assert.deepEqual((await outsideEngine(state, limit())).rules.toSorted(), rules);
});

test("an engine keeps its id whatever becomes of another one, and no engine of ours makes or removes what the machine's engines share", {
  skip: whyNoOwnEngine(),
}, async () => {
  const sharedKey = () => readFile("/etc/docker/key.json", "utf8").catch(() => "absent");
  const idOf = async (one: Engine): Promise<string> =>
    JSON.parse(expectSuccess("/info", await callEngine(one.dockerHost, { path: "/info", signal: limit() }))).ID;
  const shared = await sharedKey();
  await using second = await startPrivateEngine({ signal: limit() });
  const first = await engine({ own: true });
  const id = await idOf(second);
  assert.notEqual(await idOf(first), id);
  await first[Symbol.asyncDispose]();
  await second.kill();
  await second.start();
  assert.equal(await idOf(second), id);
  assert.equal(await sharedKey(), shared);
});

test("containers are apart where their network says so", { skip: whyNoOwnEngine() }, async () => {
  await using own = await engine({ own: true });
  await using place = await registry();
  await using image = await baseImage("busybox", { engine: own, registry: place });
  await post(own, "/networks/create", {
    Name: "strangers",
    Options: { "com.docker.network.bridge.enable_icc": "false" },
  });
  await post(own, "/networks/create", { Name: "friends" });
  const statuses: Record<string, unknown> = {};
  for (const network of ["friends", "strangers"]) {
    const start = async (name: string, command: string[]): Promise<void> => {
      await post(own, `/containers/create?name=${name}`, {
        Image: image.reference,
        Cmd: command,
        HostConfig: { NetworkMode: network },
      });
      await post(own, `/containers/${name}/start`);
    };
    await start(`server-${network}`, ["sleep", "600"]);
    await start(`client-${network}`, ["ping", "-c", "1", "-W", "2", `server-${network}`]);
    const ended: { StatusCode: number } = JSON.parse(await post(own, `/containers/client-${network}/wait`));
    statuses[network] = ended.StatusCode;
  }
  assert.deepEqual(statuses, { friends: 0, strangers: 1 });
});

test("an engine that is there is used and left alone", { skip: whyNoOwnEngine() }, async () => {
  await using own = await engine({ own: true });
  const before = process.env["DOCKER_HOST"];
  const parts = process.env["AGENTWORLDS_PARTS"];
  try {
    delete process.env["AGENTWORLDS_PARTS"];
    process.env["DOCKER_HOST"] = own.dockerHost;
    {
      await using used = await engine();
      assert.deepEqual([used.dockerHost, used.private], [own.dockerHost, false]);
    }
    assert.equal((await callEngine(own.dockerHost, { path: "/_ping", signal: limit() })).status, 200);
    process.env["DOCKER_HOST"] = "unix:///nowhere/docker.sock";
    await assert.rejects(engine(), /nothing answers at DOCKER_HOST=unix:\/\/\/nowhere\/docker.sock/);
  } finally {
    restore("DOCKER_HOST", before);
    restore("AGENTWORLDS_PARTS", parts);
  }
});

test("a folder whose daemon was killed can be used again", { skip: whyNoOwnEngine() }, async () => {
  await using own = await engine({ own: true });
  const [daemon] = own.pids();
  assert.ok(daemon !== undefined);
  process.kill(daemon, "SIGKILL");
  await eventually(
    async () => !(await leftoversOf(directoryOf(own))).processes.some((line) => line.startsWith(`${daemon} `)),
  );
  await own[Symbol.asyncDispose]();
  assert.deepEqual(await leftoversOf(directoryOf(own)), nothing);
});

function restore(name: string, value: string | undefined): void {
  if (value === undefined) delete process.env[name];
  else process.env[name] = value;
}
