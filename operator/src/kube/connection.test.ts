import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { createKubeClient } from "./client.ts";
import { Connection, ConnectionConfigError, type ConnectionSource, expectConfigured } from "./connection.ts";
import { fakeApi, json, plainKubeconfig } from "./fake-api.test-kit.ts";

const signal = new AbortController().signal;

async function temporaryFolder() {
  const path = await mkdtemp(join(tmpdir(), "kube-connection-"));
  return {
    path,
    async [Symbol.asyncDispose]() {
      await rm(path, { recursive: true, force: true });
    },
  };
}

const withUser = (port: number, user: object): string =>
  JSON.stringify({ ...JSON.parse(plainKubeconfig(port)), users: [{ name: "fake", user }] });

// client-node costs half a second and 34 MB at import (measured, reference/clients.md A1).
test("client-node is loaded by the first call, not by importing or making a client", async () => {
  const script = `
    import { registerHooks } from "node:module";
    const seen = [];
    registerHooks({ resolve(specifier, context, next) { seen.push(specifier); return next(specifier, context); } });
    const { Connection } = await import(${JSON.stringify(new URL("./connection.ts", import.meta.url).href)});
    const { createKubeClient } = await import(${JSON.stringify(new URL("./client.ts", import.meta.url).href)});
    const source = { kind: "kubeconfigText", text: ${JSON.stringify(plainKubeconfig(1))} };
    createKubeClient({ source });
    const before = seen.includes("@kubernetes/client-node");
    await new Connection({ source }).lease();
    process.stdout.write(before + " " + seen.includes("@kubernetes/client-node"));
  `;
  const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", script]);
  assert.equal(stdout, "false true");
});

test("what is missing is said: no kubeconfig, no file, no context, no token", async () => {
  await using folder = await temporaryFolder();
  const broken: [source: ConstructorParameters<typeof Connection>[0]["source"], sentence: RegExp][] = [
    [{ kind: "kubeconfig", path: join(folder.path, "none") }, /cannot be read.*ENOENT/],
    [{ kind: "kubeconfigText", text: "{}" }, /no current context/],
    [{ kind: "kubeconfigText", text: plainKubeconfig(1), context: "other" }, /no current context/],
    [{ kind: "serviceAccount", server: "https://127.0.0.1:1", directory: folder.path }, /token/],
    [{ kind: "serviceAccount", directory: folder.path }, /KUBERNETES_SERVICE_HOST/],
  ];
  for (const [source, sentence] of broken) {
    const connection = new Connection({ source });
    await assert.rejects(connection.lease(), (error) => {
      assert.ok(error instanceof ConnectionConfigError);
      assert.match(error.message, sentence);
      return true;
    });
    await connection.close();
  }
});

// KUBECONFIG=/nope looked like an outage: the same warning every two seconds, for ever.
test("a configuration that is not there is named by the setting before anything begins; a server that is away is not asked", async () => {
  const broken: [source: ConnectionSource, sentence: RegExp][] = [
    [{ kind: "kubeconfig", path: "/nope" }, /^--kubeconfig \/nope cannot be read: ENOENT/],
    [{ kind: "kubeconfigText", text: "{}" }, /no current context/],
  ];
  for (const [source, sentence] of broken) {
    await assert.rejects(expectConfigured(source), (error) => {
      assert.ok(error instanceof ConnectionConfigError);
      assert.match(error.message, sentence);
      return true;
    });
  }
  await expectConfigured({ kind: "kubeconfigText", text: plainKubeconfig(1) });
});

test("a file that could not be read is read at the next call", async () => {
  await using folder = await temporaryFolder();
  const path = join(folder.path, "config");
  const connection = new Connection({ source: { kind: "kubeconfig", path } });
  await assert.rejects(connection.lease(), ConnectionConfigError);
  await writeFile(path, plainKubeconfig(1));
  assert.equal((await connection.lease()).server, "http://127.0.0.1:1");
  await connection.close();
});

test("the pool stays while the credentials are the same, and a new certificate makes a new one", async () => {
  await using folder = await temporaryFolder();
  const ca = join(folder.path, "ca.crt");
  await writeFile(ca, "first");
  await writeFile(join(folder.path, "token"), "t\n");
  const source = { kind: "serviceAccount", server: "https://127.0.0.1:1", directory: folder.path } as const;
  const connection = new Connection({ source });
  const [one, two] = [await connection.lease(), await connection.lease()];
  assert.equal(one.calls, two.calls);
  assert.equal(one.headers["authorization"], "Bearer t", "the newline of the file is not part of the token");
  await writeFile(ca, "second");
  const three = await connection.lease();
  assert.notEqual(three.calls, one.calls);
  await connection.close();
});

test("of many calls refused at once the first re-reads the configuration, the others follow", async () => {
  const connection = new Connection({ source: { kind: "kubeconfigText", text: plainKubeconfig(1) } });
  const { generation } = await connection.lease();
  connection.refresh(generation);
  connection.refresh(generation);
  assert.equal((await connection.lease()).generation, generation + 1);
  await connection.close();
});

// kubernetes-client/javascript#1240, #228: a rotated token was not read, an exec credential not renewed.
test("a token rotated in the kubeconfig is read after a 401, once for many calls", async () => {
  await using folder = await temporaryFolder();
  await using api = await fakeApi((request, response) =>
    request.headers.authorization === "Bearer new"
      ? json(response, 200, { ok: true })
      : json(response, 401, { reason: "Unauthorized" }),
  );
  const path = join(folder.path, "config");
  await writeFile(path, withUser(api.port, { token: "old" }));
  const client = createKubeClient({ source: { kind: "kubeconfig", path } });
  await assert.rejects(client.request("GET", "/x", { signal }));
  await writeFile(path, withUser(api.port, { token: "new" }));
  const answers = await Promise.all(Array.from({ length: 5 }, () => client.request("GET", "/x", { signal })));
  assert.equal(answers.length, 5);
  await client.close();
});

test("an exec plugin is run for its token, and again when the server refuses it", async () => {
  await using folder = await temporaryFolder();
  const counter = join(folder.path, "count");
  await writeFile(counter, "");
  await using api = await fakeApi((request, response) =>
    request.headers.authorization === "Bearer run-2"
      ? json(response, 200, { ok: true })
      : json(response, 401, { reason: "Unauthorized" }),
  );
  const script = `printf x >> ${counter}; n=$(wc -c < ${counter}); echo '{"status":{"token":"run-'$n'"}}'`;
  const exec = { apiVersion: "client.authentication.k8s.io/v1", command: "sh", args: ["-c", script] };
  const text = withUser(api.port, { exec });
  const client = createKubeClient({ source: { kind: "kubeconfigText", text } });
  await client.request("GET", "/x", { signal });
  await client.request("GET", "/x", { signal });
  assert.equal(api.seen.length, 3, "the second token is kept");
  await client.close();
});

test("proxy-url is honoured", async () => {
  const seen: string[] = [];
  // A forward proxy for plain HTTP gets the absolute address as its request target.
  const proxy = createServer((request, response) => {
    seen.push(request.url ?? "");
    json(response, 200, { via: "proxy" });
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const address = proxy.address();
  assert.ok(typeof address === "object" && address !== null);
  const config = JSON.parse(plainKubeconfig(1));
  config.clusters[0].cluster["proxy-url"] = `http://127.0.0.1:${address.port}`;
  const client = createKubeClient({ source: { kind: "kubeconfigText", text: JSON.stringify(config) } });
  assert.deepEqual(await client.request("GET", "/x", { signal }), { via: "proxy" });
  assert.deepEqual(seen, ["http://127.0.0.1:1/x"]);
  await client.close();
  proxy.closeAllConnections();
  await new Promise<void>((resolve) => proxy.close(() => resolve()));
});
