import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { ConfigError, loadConfig, overlay, parseConfig } from "./config.ts";

const registry = { url: "https://registry.acme.dev" };

/** A file that is gone with the test. */
async function configFile(text: string): Promise<AsyncDisposable & { readonly path: string }> {
  const directory = await mkdtemp(join(tmpdir(), "agent-worlds-config-"));
  const path = join(directory, "config.yaml");
  await writeFile(path, text);
  return { path, [Symbol.asyncDispose]: () => rm(directory, { recursive: true }) };
}

const refusal = async (call: () => unknown): Promise<string> => {
  try {
    await call();
  } catch (error) {
    assert.ok(error instanceof ConfigError, String(error));
    return error.message;
  }
  return assert.fail("it was accepted");
};

test("a registry is all that must be stated; everything else has its documented default", () => {
  assert.deepEqual(parseConfig({ registry }), {
    role: "all",
    namespace: "agent-worlds-system",
    registry: { url: "https://registry.acme.dev", prefix: "worlds" },
    sources: { development: "Disabled" },
    gateway: { port: 8443, address: "0.0.0.0", aggregation: "Enabled", service: "InCluster", creatorStamp: "Enabled" },
    leader: { leaseDurationSeconds: 15, renewDeadlineSeconds: 10, retryPeriodSeconds: 2 },
    limits: {
      deletionDeadlineSeconds: 600,
      rescueAfterSeconds: 600,
      bootDeadlineSeconds: 900,
      workers: 16,
      drainSeconds: 20,
    },
    verification: { intervalSeconds: 86_400, callsPerSecond: 20 },
    metrics: { port: 8080 },
    health: { port: 8081 },
    helper: {},
    log: { level: "info" },
  });
});

const refused: [name: string, document: unknown, names: RegExp][] = [
  ["no registry", {}, /registry/],
  ["an unknown key", { registry, regsitry: {} }, /regsitry/],
  ["an unknown key inside a section", { registry: { ...registry, user: "x" } }, /registry\.user/],
  ["a url of another protocol", { registry: { url: "ftp://x" } }, /registry\.url/],
  ["a prefix that no registry takes", { registry: { ...registry, prefix: "Worlds/x" } }, /registry\.prefix/],
  ["an unknown role", { registry, role: "master" }, /role/],
  ["a port out of range", { registry, gateway: { port: 70_000 } }, /gateway\.port/],
  ["no workers", { registry, limits: { workers: 0 } }, /limits\.workers/],
  [
    "a lease of a fraction of a second",
    { registry, leader: { leaseDurationSeconds: 0.5 } },
    /leader\.leaseDurationSeconds/,
  ],
  [
    "a renew deadline that is too near the end of the lease",
    { registry, leader: { leaseDurationSeconds: 15, renewDeadlineSeconds: 12.1 } },
    /leader\.renewDeadlineSeconds \(AGENTWORLDS_LEADER_RENEW_DEADLINE_SECONDS\): must be at most 12, 0\.8 of leader\.leaseDurationSeconds/,
  ],
  [
    "a lease that is too short for the renew deadline that nobody stated",
    { registry, leader: { leaseDurationSeconds: 5 } },
    /leader\.renewDeadlineSeconds .*: must be at most 4,/,
  ],
  [
    "a pause that leaves too few tries before the renew deadline",
    { registry, leader: { leaseDurationSeconds: 15, renewDeadlineSeconds: 10, retryPeriodSeconds: 2.5 } },
    /leader\.retryPeriodSeconds .*: must be at most 2, a fifth of leader\.renewDeadlineSeconds/,
  ],
  ["a list instead of a mapping", [1], /object/],
  ["a text", "registry", /object/],
];
for (const [name, document, names] of refused) {
  test(`${name} is refused, and the message names the key`, async () => {
    assert.match(await refusal(() => parseConfig(document)), names);
  });
}

const explained: [name: string, document: unknown, lines: string[]][] = [
  [
    "nothing at all, as a newcomer starts it",
    {},
    [
      "registry.url (AGENTWORLDS_REGISTRY_URL) is missing: Where the operator reaches the registry: `https://host[:port]`, or `http://` on loopback only.",
    ],
  ],
  [
    "a registry by plain http",
    { registry: { url: "http://registry.corp.example" } },
    ["registry.url (AGENTWORLDS_REGISTRY_URL): plain http:// is for loopback only; use https://"],
  ],
  [
    "a registry with a path",
    { registry: { url: "https://registry.corp.example/v2" } },
    ["registry.url (AGENTWORLDS_REGISTRY_URL): must be https://host[:port] and no more: no path, no user"],
  ],
  [
    "an item of a list",
    { registry, sources: { allow: ["ghcr.io", 1] } },
    ["sources.allow (AGENTWORLDS_SOURCES_ALLOW): Invalid input: expected string, received number"],
  ],
  [
    "words that are no settings",
    { registry: { ...registry, user: "x" }, gatway: {} },
    ["registry.user: there is no such setting", "gatway: there is no such setting"],
  ],
  [
    "a section that is a text",
    { registry, limits: "many" },
    ["limits: Invalid input: expected object, received string"],
  ],
];
for (const [name, document, lines] of explained) {
  test(`${name}: the message names file key and variable, and what is expected`, async () => {
    const [, ...said] = (await refusal(() => parseConfig(document))).split("\n");
    assert.deepEqual(said.toSorted(), lines.map((line) => `- ${line}`).toSorted());
  });
}

test("a lease, its renew deadline and its pause are taken as they are stated, up to the bounds", () => {
  const leader = { leaseDurationSeconds: 5, renewDeadlineSeconds: 4, retryPeriodSeconds: 0.8 };
  assert.deepEqual(parseConfig({ registry, leader }).leader, leader);
});

test("every wrong key is named at once, and no value is repeated", async () => {
  const message = await refusal(() =>
    parseConfig({ registry: { url: "s3cret-not-a-url" }, log: { level: "loud" }, metrics: { port: -1 } }),
  );
  for (const key of [/registry\.url/, /log\.level/, /metrics\.port/]) assert.match(message, key);
  assert.doesNotMatch(message, /s3cret/);
});

const overlaid: [variable: string, raw: string, document: unknown, want: unknown][] = [
  ["AGENTWORLDS_REGISTRY_URL", "http://127.0.0.1:5055", {}, { registry: { url: "http://127.0.0.1:5055" } }],
  [
    "AGENTWORLDS_REGISTRY_URL",
    "https://b",
    { registry: { url: "https://a", prefix: "p" } },
    { registry: { url: "https://b", prefix: "p" } },
  ],
  ["AGENTWORLDS_REGISTRY_PULL_AS", "registry:5000", {}, { registry: { pullAs: "registry:5000" } }],
  ["AGENTWORLDS_LIMITS_DELETION_DEADLINE_SECONDS", "1.5", {}, { limits: { deletionDeadlineSeconds: 1.5 } }],
  ["AGENTWORLDS_GATEWAY_PORT", "0", {}, { gateway: { port: 0 } }],
  ["AGENTWORLDS_METRICS_PORT", "9090", { metrics: null }, { metrics: { port: 9090 } }],
  ["AGENTWORLDS_ROLE", "gateway", { role: "all" }, { role: "gateway" }],
  ["AGENTWORLDS_SOURCES_ALLOW", '["ghcr.io","10.0.0.1"]', {}, { sources: { allow: ["ghcr.io", "10.0.0.1"] } }],
  ["AGENTWORLDS_NAMESPACE", "2026", {}, { namespace: "2026" }],
  ["AGENTWORLDS_REGISTRY_PREFIX", "42", {}, { registry: { prefix: "42" } }],
  ["AGENTWORLDS_SOURCES_CREDENTIALS_SECRET", "[x]", {}, { sources: { credentialsSecret: "[x]" } }],
];
for (const [variable, raw, document, want] of overlaid) {
  test(`${variable}=${raw} over ${JSON.stringify(document)}`, () => {
    assert.deepEqual(overlay(document, { [variable]: raw, PATH: "/bin" }), want);
  });
}

test("a value that is none of its key is refused under the key's name", async () => {
  const message = await refusal(() => parseConfig(overlay({ registry }, { AGENTWORLDS_GATEWAY_PORT: "https" })));
  assert.match(message, /gateway\.port/);
});

test("the document given is not changed", () => {
  const document = { registry: { url: "https://a" } };
  overlay(document, { AGENTWORLDS_REGISTRY_URL: "https://b" });
  assert.deepEqual(document, { registry: { url: "https://a" } });
});

for (const variable of [
  "AGENTWORLDS_REGISTRY_ULR",
  "AGENTWORLDS_REGISTRY",
  "AGENTWORLDS_",
  "AGENTWORLDS_registry_url",
]) {
  test(`the variable ${variable} names no setting and is refused, not ignored`, async () => {
    assert.match(await refusal(() => overlay({}, { [variable]: "x" })), new RegExp(`${variable} names no setting`));
  });
}

test("variables of other programs, and ones without a value, are left alone", () => {
  const environment = { AGENTWORLDS_PARTS: "/tmp/parts.json", AGENTWORLDS_UNSET: undefined, AGENT_WORLDS_PORT: "1" };
  assert.deepEqual(overlay({}, environment), {});
});

test("a document that is no mapping cannot be overlaid", async () => {
  assert.match(await refusal(() => overlay([], { AGENTWORLDS_ROLE: "all" })), /mapping/);
});

test("whatever text a variable holds, nothing but a ConfigError comes of it", () => {
  const variable = fc.constantFrom("AGENTWORLDS_GATEWAY_PORT", "AGENTWORLDS_SOURCES_ALLOW", "AGENTWORLDS_LOG_LEVEL");
  fc.assert(
    fc.property(variable, fc.oneof(fc.string(), fc.json()), (name, raw) => {
      try {
        parseConfig(overlay({ registry }, { [name]: raw }));
      } catch (error) {
        assert.ok(error instanceof ConfigError, String(error));
      }
    }),
  );
});

test("the file is read as YAML, and the environment goes over it", async () => {
  await using file = await configFile("registry:\n  url: https://a\nlimits:\n  workers: 4\n");
  const config = await loadConfig({ file: file.path, environment: { AGENTWORLDS_REGISTRY_URL: "https://b" } });
  assert.equal(config.registry.url, "https://b");
  assert.equal(config.limits.workers, 4);
});

test("without a file the environment is enough", async () => {
  const config = await loadConfig({ file: undefined, environment: { AGENTWORLDS_REGISTRY_URL: "https://b" } });
  assert.equal(config.registry.url, "https://b");
});

test("an empty file is an empty configuration", async () => {
  await using file = await configFile("# nothing yet\n");
  assert.match(await refusal(() => loadConfig({ file: file.path, environment: {} })), /registry/);
});

test("a file that is no YAML, or is not there, is named", async () => {
  await using file = await configFile("registry: [");
  assert.match(await refusal(() => loadConfig({ file: file.path, environment: {} })), /config\.yaml is not YAML/);
  const missing = `${file.path}.missing`;
  assert.match(await refusal(() => loadConfig({ file: missing, environment: {} })), /missing cannot be read/);
});
