import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { test } from "node:test";
import { stringify } from "yaml";
import type { Access, CredentialPlugin } from "./access.ts";
import { findAccess, type Surroundings } from "./ambient.ts";
import { runCredentialPlugin } from "./credential-plugin.ts";
import { CredentialSource } from "./credentials.ts";
import { ConfigurationError } from "./errors.ts";
import { accessFromKubeconfig } from "./kubeconfig.ts";

const base64 = (text: string): string => Buffer.from(text).toString("base64");

function config(user: Record<string, unknown>, cluster: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    clusters: [{ name: "c", cluster: { server: "https://10.0.0.1:6443/", ...cluster } }],
    users: [{ name: "u", user }],
    contexts: [
      { name: "x", context: { cluster: "c", user: "u", namespace: "lab" } },
      { name: "y", context: { cluster: "c" } },
      { name: "z", context: { cluster: "gone", user: "u" } },
    ],
    "current-context": "x",
  };
}

const read = (content: unknown, context?: string): Access =>
  accessFromKubeconfig([{ path: "/home/me/.kube/config", content }], context);

const plugin = {
  apiVersion: "client.authentication.k8s.io/v1",
  command: "./bin/login",
  args: ["--for", 7],
  env: [{ name: "A", value: "b" }],
};

const users: [what: string, user: Record<string, unknown>, want: Access["user"]][] = [
  ["a token", { token: "t" }, { token: "t" }],
  ["a token file beside the kubeconfig", { tokenFile: "secret/token" }, { tokenFile: "/home/me/.kube/secret/token" }],
  [
    "embedded certificate and key",
    { "client-certificate-data": base64("CERT"), "client-key-data": base64("KEY") },
    { certificate: { kind: "Inline", pem: "CERT" }, key: { kind: "Inline", pem: "KEY" } },
  ],
  [
    "certificate and key in files",
    { "client-certificate": "c.crt", "client-key": "/etc/c.key" },
    { certificate: { kind: "File", path: "/home/me/.kube/c.crt" }, key: { kind: "File", path: "/etc/c.key" } },
  ],
  [
    "an exec plugin by a relative path",
    { exec: plugin },
    {
      plugin: {
        apiVersion: plugin.apiVersion,
        command: "/home/me/.kube/bin/login",
        args: ["--for", "7"],
        env: { A: "b" },
        installHint: undefined,
        cluster: undefined,
      },
    },
  ],
];
for (const [what, user, want] of users) {
  test(`a kubeconfig's user with ${what} is read`, () => {
    const seen = Object.entries(read(config(user)).user).filter(([, value]) => value !== undefined);
    assert.deepEqual(Object.fromEntries(seen), want);
  });
}

test("server, namespace, authority, server name and proxy come from cluster and context", () => {
  const cluster = {
    "certificate-authority-data": base64("CA"),
    "tls-server-name": "kubernetes",
    "proxy-url": "http://proxy:3128",
    "insecure-skip-tls-verify": true,
  };
  const access = read(config({}, cluster));
  assert.equal(access.namespace, "lab");
  assert.deepEqual(access.server, {
    server: "https://10.0.0.1:6443",
    ca: { kind: "Inline", pem: "CA" },
    insecureSkipVerify: true,
    serverName: "kubernetes",
    proxyUrl: "http://proxy:3128",
  });
});

test("a context may be named; without a user and a namespace it is anonymous in default", () => {
  const access = read(config({ token: "t" }), "y");
  assert.equal(access.namespace, "default");
  assert.deepEqual(access.user, {});
});

const refusals: [what: string, content: unknown, context: string | undefined, code: string][] = [
  ["no current context", { ...config({}), "current-context": "" }, undefined, "NoContext"],
  ["a context that is not there", config({}), "nope", "ContextNotFound"],
  ["a context whose cluster is not there", config({}), "z", "ClusterNotFound"],
  ["a user that is not there", { ...config({}), users: [] }, undefined, "UserNotFound"],
  ["a server that is no address", config({}, { server: "::" }), undefined, "BadServer"],
  ["an auth-provider", config({ "auth-provider": { name: "gcp" } }), undefined, "AuthProviderUnsupported"],
  ["impersonation, which would be ignored", config({ token: "t", as: "root" }), undefined, "CredentialsUnsupported"],
  ["a plugin without a command", config({ exec: { apiVersion: plugin.apiVersion } }), undefined, "BadPlugin"],
  ["a plugin of an unknown version", config({ exec: { ...plugin, apiVersion: "v9" } }), undefined, "BadPlugin"],
  [
    "a plugin that wants a terminal",
    config({ exec: { ...plugin, interactiveMode: "Always" } }),
    undefined,
    "PluginInteractive",
  ],
  ["a file that is no kubeconfig", "just text", undefined, "NoContext"],
];
for (const [what, content, context, code] of refusals) {
  test(`${what} is refused as ${code}, with advice`, () => {
    assert.throws(
      () => read(content, context),
      (error) => error instanceof ConfigurationError && error.code === code && error.remediation !== undefined,
    );
  });
}

async function folder(): Promise<AsyncDisposable & { path: string }> {
  const path = await mkdtemp(join(tmpdir(), "agentworlds-sdk-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true }) };
}

const around = (path: string, environment: Surroundings["environment"] = {}): Surroundings => ({
  environment,
  home: path,
  serviceAccount: join(path, "serviceaccount"),
});

test("several files of KUBECONFIG are merged, the first that says something wins, a missing one is passed over", async () => {
  await using at = await folder();
  const [one, two] = [join(at.path, "one"), join(at.path, "two")];
  await writeFile(one, stringify({ users: [{ name: "u", user: { token: "first" } }], "current-context": "x" }));
  await writeFile(two, stringify(config({ token: "second" })));
  const environment = { KUBECONFIG: [join(at.path, "missing"), one, two].join(delimiter) };
  const access = await findAccess({}, around(at.path, environment));
  assert.equal(access.user.token, "first");
  assert.equal(access.server.server, "https://10.0.0.1:6443");
});

test("in a pod without a kubeconfig the service account is used", async () => {
  await using at = await folder();
  const { mkdir } = await import("node:fs/promises");
  const where = around(at.path, { KUBERNETES_SERVICE_HOST: "fd00::1", KUBERNETES_SERVICE_PORT: "443" });
  await mkdir(where.serviceAccount);
  await writeFile(join(where.serviceAccount, "token"), "t\n");
  await writeFile(join(where.serviceAccount, "namespace"), "agents\n");
  const access = await findAccess({}, where);
  assert.equal(access.server.server, "https://[fd00::1]:443");
  assert.equal(access.namespace, "agents");
  assert.equal((await new CredentialSource(access.user, {}).current()).token, "t");
  await writeFile(join(where.serviceAccount, "token"), "rotated\n");
  const source = new CredentialSource(access.user, {});
  assert.equal((await source.current()).token, "rotated");
});

test("nothing configured is told with every place that was looked at", async () => {
  await using at = await folder();
  await assert.rejects(findAccess({}, around(at.path)), (error) => {
    assert.ok(error instanceof ConfigurationError);
    assert.equal(error.code, "NoCluster");
    assert.match(error.message, /\.kube\/config/);
    assert.match(error.message, /serviceaccount\/token/);
    return true;
  });
});

test("a stated server needs no kubeconfig", async () => {
  await using at = await folder();
  const stated = { server: "https://api:6443/", token: "t", ca: "CA", namespace: "n" };
  const access = await findAccess(stated, around(at.path));
  assert.deepEqual(access, {
    server: { server: "https://api:6443", ca: { kind: "Inline", pem: "CA" }, insecureSkipVerify: false },
    user: { token: "t" },
    namespace: "n",
  });
});

test("a kubeconfig that is not YAML is named without quoting it", async () => {
  await using at = await folder();
  const path = join(at.path, "config");
  await writeFile(path, "users: [{token: s3cret");
  await assert.rejects(findAccess({ kubeconfig: path }, around(at.path)), (error) => {
    assert.ok(error instanceof ConfigurationError && error.code === "BadKubeconfig");
    assert.doesNotMatch(JSON.stringify([error.message, String(error.cause)]), /s3cret/);
    return true;
  });
});

/** A plugin that runs this JavaScript. */
const scripted = (script: string, more: Partial<CredentialPlugin> = {}): CredentialPlugin => ({
  apiVersion: plugin.apiVersion,
  command: process.execPath,
  args: ["-e", script],
  env: {},
  ...more,
});
const printing = (status: Record<string, unknown>): string =>
  `console.log(JSON.stringify({ apiVersion: ${JSON.stringify(plugin.apiVersion)}, kind: "ExecCredential", status: ${JSON.stringify(status)} }))`;

test("an exec plugin gets its arguments, environment and cluster, no shell, and an end of input", async () => {
  const script = `
    process.stdin.resume().on("end", () => {
      const { spec } = JSON.parse(process.env.KUBERNETES_EXEC_INFO);
      const token = [process.argv[1], process.env.A, spec.cluster.server, spec.interactive].join("|");
      console.log(JSON.stringify({ apiVersion: "${plugin.apiVersion}", kind: "ExecCredential", status: { token } }));
    });`;
  const wish = scripted(script, { env: { A: "b" }, cluster: { server: "https://c" } });
  const credential = await runCredentialPlugin({ ...wish, args: [...wish.args, "$(echo no)"] }, process.env);
  assert.equal(credential.token, "$(echo no)|b|https://c|false");
});

test("calls at the same time share one run of the plugin; one that expires is run anew, one that was refused too", async () => {
  await using at = await folder();
  const log = join(at.path, "runs");
  const run = (expires: string) =>
    scripted(
      `require("fs").appendFileSync(${JSON.stringify(log)}, "x"); ${printing({ token: "t", expirationTimestamp: expires })}`,
    );
  const runs = async () => (await import("node:fs/promises")).readFile(log, "utf8");
  const lasting = new CredentialSource({ plugin: run("2999-01-01T00:00:00Z") }, process.env);
  await Promise.all([lasting.current(), lasting.current(), lasting.current()]);
  assert.equal(await runs(), "x");
  lasting.refresh();
  await lasting.current();
  assert.equal(await runs(), "xx");
  const expired = new CredentialSource({ plugin: run("2001-01-01T00:00:00Z") }, process.env);
  await expired.current();
  await expired.current();
  assert.equal(await runs(), "xxxx");
});

const pluginFailures: [what: string, plugin: CredentialPlugin, code: string, says: RegExp][] = [
  [
    "that is missing",
    scripted("", { command: "/nonexistent/login", installHint: "brew install login" }),
    "PluginMissing",
    /not installed/,
  ],
  [
    "that fails",
    scripted("console.error('please log in'); process.exit(3)"),
    "PluginFailed",
    /ended with 3: please log in/,
  ],
  ["that prints something else", scripted("console.log('token: s3cret')"), "BadPluginOutput", /ExecCredential/],
  [
    "of another version",
    scripted(`console.log('{"apiVersion":"v9","status":{"token":"s3cret"}}')`),
    "BadPluginOutput",
    /ExecCredential/,
  ],
  [
    "with a certificate but no key",
    scripted(printing({ clientCertificateData: "s3cret" })),
    "BadPluginOutput",
    /ExecCredential/,
  ],
];
for (const [what, wish, code, says] of pluginFailures) {
  test(`a plugin ${what} is told as ${code}, and nothing it printed leaks`, async () => {
    await assert.rejects(new CredentialSource({ plugin: wish }, process.env).current(), (error) => {
      assert.ok(error instanceof ConfigurationError);
      assert.equal(error.code, code);
      assert.match(error.message, says);
      assert.ok(error.remediation);
      assert.doesNotMatch(`${error.message} ${error.cause}`, /s3cret/);
      return true;
    });
  });
}
