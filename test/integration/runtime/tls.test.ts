import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { after, before, describe, test } from "node:test";
import { createServer } from "node:tls";
import { createAuthority, issue } from "../../../hack/parts/certificates.ts";
import { createDockerDriver } from "../../../operator/src/runtime/docker/driver.ts";
import { loadHelper } from "../../../operator/src/runtime/helper.ts";
import { Bench, refusal } from "../../conformance/driver/bench.ts";
import { type DockerUnderTest, makeDocker } from "../../conformance/driver/docker.ts";

const authority = createAuthority("engines");
const server = issue(authority, { commonName: "engine", names: ["127.0.0.1"], usage: "server" });
const client = issue(authority, { commonName: "operator", usage: "client" });

const toEngine = (dockerHost: string): Socket => {
  const url = new URL(dockerHost);
  return url.protocol === "unix:" ? connect(url.pathname) : connect(Number(url.port), url.hostname);
};

/** An engine's port with TLS: asks for a client certificate of the authority, then hands bytes through. */
async function tlsFront(dockerHost: string): Promise<AsyncDisposable & { endpoint: string }> {
  const front = createServer(
    { cert: server.certPem, key: server.keyPem, ca: authority.certPem, requestCert: true, rejectUnauthorized: true },
    (socket) => {
      const engine = toEngine(dockerHost);
      socket.pipe(engine).pipe(socket);
      // Either end going away ends the other, and a reset is one way to go.
      socket.on("error", () => socket.destroy()).on("close", () => engine.destroy());
      engine.on("error", () => engine.destroy()).on("close", () => socket.destroy());
    },
  );
  const open = new Set<Socket>();
  front.on("connection", (socket: Socket) => open.add(socket));
  front.listen(0, "127.0.0.1");
  await once(front, "listening");
  const address = front.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  return {
    endpoint: `tcp://127.0.0.1:${address.port}`,
    async [Symbol.asyncDispose]() {
      for (const socket of open) socket.destroy();
      front.close();
      await once(front, "close");
    },
  };
}

describe("an engine behind TLS", () => {
  let under: DockerUnderTest;
  before(async () => {
    under = await makeDocker();
  });
  after(async () => {
    await under[Symbol.asyncDispose]();
  });

  const driverFor = (endpoint: string, tls: { ca: string; cert: string; key: string }) =>
    createDockerDriver({
      installation: under.installation,
      endpoint,
      tls,
      helper: (platform, signal) => loadHelper({ platform }, signal),
    });

  test("a session lives, runs commands and moves files over TLS with a client certificate", async () => {
    await using front = await tlsFront(under.dockerHost);
    await using stack = new AsyncDisposableStack();
    const tls = { ca: authority.certPem, cert: client.certPem, key: client.keyPem };
    const driver = stack.adopt(driverFor(front.endpoint, tls), (one) => one.close());
    const bench = stack.use(
      new Bench({ ...under, driver, kill: under.kill, [Symbol.asyncDispose]: async () => undefined }),
    );
    const id = await bench.create();
    assert.equal(await bench.shell(id, "echo over TLS"), "over TLS\n");
    const content = Buffer.alloc(3 << 20, "x");
    await bench.write(id, "/work/file", content);
    assert.ok((await bench.read(id, "/work/file")).equals(content));
  });

  test("an engine of another authority, and an engine that does not know us, are not talked to", async () => {
    await using front = await tlsFront(under.dockerHost);
    const stranger = createAuthority("strangers");
    const unknown = issue(stranger, { commonName: "operator", usage: "client" });
    const cases = [
      { ca: stranger.certPem, cert: client.certPem, key: client.keyPem },
      { ca: authority.certPem, cert: unknown.certPem, key: unknown.keyPem },
    ];
    for (const tls of cases) {
      const driver = driverFor(front.endpoint, tls);
      try {
        await assert.rejects(driver.probe(AbortSignal.timeout(30_000)), refusal("HostUnreachable"));
      } finally {
        await driver.close();
      }
    }
  });
});
