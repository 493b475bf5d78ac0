/** Objects that the API server accepts or refuses, with the sentence that it refuses them with. */
import type { Json } from "./api.ts";

export type Kind = "World" | "Sandbox" | "Runtime";

const image = "busybox:1.36";
const host = { name: "a", endpoint: "unix:///run/docker.sock" };
const world = (fields: Json = {}): Json => ({ from: { image }, ...fields });
const sandbox = (fields: Json = {}): Json => ({ world: { name: "w" }, ...fields });
const runtime = (fields: Json = {}): Json => ({ docker: { hosts: [host] }, ...fields });
const environment = (...env: Json[]): Json => sandbox({ env });
const variables = (count: number): Json[] => Array.from({ length: count }, (_, i) => ({ name: `V${i}`, value: "" }));
const hosts = (...changes: Json[]): Json =>
  runtime({ docker: { hosts: changes.map((change) => ({ ...host, ...change })) } });
const DAY = 86_400;

/** Specs that are accepted. */
export const good: [promise: string, kind: Kind, spec: Json][] = [
  ["a World needs a source only", "World", world()],
  [
    "an image may have a port, a path, a tag and a digest",
    "World",
    { from: { image: `127.0.0.1:5055/a/b:1@sha256:${"0".repeat(64)}` } },
  ],
  [
    "a repository of an earlier World may be named with its registry or without",
    "World",
    { from: { repository: { name: "127.0.0.1:5055/worlds/i/team/lab-0a1b2c3d" } } },
  ],
  ["a description may have 1024 characters of any script", "World", world({ description: "語".repeat(1024) })],
  ["ttl and lifetime may be equal", "World", world({ session: { ttlSeconds: 60, maxLifetimeSeconds: 60 } })],
  ["a Sandbox needs a World only", "Sandbox", sandbox()],
  ["a Sandbox needs an image only", "Sandbox", { image }],
  ["a ttl without a lifetime is the World's matter", "Sandbox", sandbox({ ttlSeconds: 30 * DAY })],
  ["an empty value is a value", "Sandbox", environment({ name: "EMPTY", value: "" })],
  ["a CPU may be written as a number", "Sandbox", sandbox({ resources: { cpu: 2, memory: "512Mi" } })],
  ["a CPU may be written as a fraction", "Sandbox", sandbox({ resources: { cpu: "0.5", memory: "1e9" } })],
  ["64 variables are not too many", "Sandbox", environment(...variables(64))],
  ["a Runtime needs one host only", "Runtime", runtime()],
  ["a host may be an IPv6 address", "Runtime", hosts({ endpoint: "tcp://[::1]:2376", tlsSecretRef: { name: "tls" } })],
  [
    "namespaces may be selected",
    "Runtime",
    runtime({
      namespaces: {
        matchLabels: { "example.com/team": "a" },
        matchExpressions: [{ key: "env", operator: "In", values: ["dev"] }],
      },
    }),
  ],
];

/** Specs that are refused on creation. */
export const bad: [what: string, kind: Kind, spec: Json, sentence: RegExp][] = [
  ["a World without a source", "World", {}, /spec\.from: Required value/],
  [
    "a World whose source is empty",
    "World",
    { from: {} },
    /spec\.from: .*exactly one source must be set: image, repository/,
  ],
  [
    "a World with two sources",
    "World",
    { from: { image: "busybox:1", repository: { name: "worlds/i/team/lab-0a1b2c3d" } } },
    /exactly one source must be set: image, repository/,
  ],
  [
    "a repository with a tag",
    "World",
    { from: { repository: { name: "worlds/i/team/lab-0a1b2c3d:v3" } } },
    /must be a repository without tag and digest/,
  ],
  [
    "a repository that climbs",
    "World",
    { from: { repository: { name: "worlds/i/team/../other/lab-0a1b2c3d" } } },
    /must be a repository without tag and digest/,
  ],
  [
    "a repository of one word",
    "World",
    { from: { repository: { name: "lab-0a1b2c3d" } } },
    /must be a repository without/,
  ],
  [
    "an image with a scheme",
    "World",
    { from: { image: "https://ghcr.io/a" } },
    /spec\.from\.image: .*must be an image reference without a scheme, such as ghcr\.io/,
  ],
  [
    "an image with a password",
    "World",
    { from: { image: "user:pw@ghcr.io/a" } },
    /must be an image reference without a scheme/,
  ],
  ["an image with a space", "World", { from: { image: "busy box" } }, /must be an image reference without a scheme/],
  ["an empty image", "World", { from: { image: "" } }, /spec\.from\.image: .*at least 1 chars long/],
  [
    "an image of 513 characters",
    "World",
    { from: { image: "a".repeat(513) } },
    /spec\.from\.image: Too long: may not be more than 512/,
  ],
  [
    "a description of 1025 characters",
    "World",
    world({ description: "x".repeat(1025) }),
    /spec\.description: Too long: may not be more than 1024/,
  ],
  [
    "a negative ttl",
    "World",
    world({ session: { ttlSeconds: -5 } }),
    /spec\.session\.ttlSeconds: Invalid value: -5: .*greater than or equal to 1/,
  ],
  ["a ttl of nothing", "World", world({ session: { ttlSeconds: 0 } }), /greater than or equal to 1/],
  [
    "a ttl beyond 30 days",
    "World",
    world({ session: { ttlSeconds: 30 * DAY + 1, maxLifetimeSeconds: 30 * DAY } }),
    /less than or equal to 2592000|less than or equal to 2\.592e\+06/,
  ],
  [
    "a ttl in words",
    "World",
    world({ session: { ttlSeconds: "15m" } }),
    /spec\.session\.ttlSeconds: Invalid value: "string": .*must be of type integer/,
  ],
  [
    "a ttl above the lifetime",
    "World",
    world({ session: { ttlSeconds: 61, maxLifetimeSeconds: 60 } }),
    /spec\.session\.ttlSeconds: .*ttlSeconds \(900 when unset\) must not be greater than maxLifetimeSeconds/,
  ],
  [
    "a ttl above the lifetime's default",
    "World",
    world({ session: { ttlSeconds: 20_000 } }),
    /maxLifetimeSeconds \(14400 when unset\)/,
  ],
  [
    "a lifetime below the ttl's default",
    "World",
    world({ session: { maxLifetimeSeconds: 60 } }),
    /ttlSeconds \(900 when unset\)/,
  ],
  [
    "keeping fewer than no versions",
    "World",
    world({ retention: { keepVersions: -1 } }),
    /spec\.retention\.keepVersions: .*greater than or equal to 0/,
  ],
  ["keeping more versions than fit", "World", world({ retention: { keepVersions: 65 } }), /less than or equal to 64/],
  [
    "a version pinned twice",
    "World",
    world({ retention: { pinned: [1, 1] } }),
    /spec\.retention\.pinned\[1\]: Duplicate value: 1/,
  ],
  [
    "an unknown deletion policy",
    "World",
    world({ deletionPolicy: "Keep" }),
    /spec\.deletionPolicy: Unsupported value: "Keep": supported values: "Retain", "Delete"/,
  ],
  [
    "a field that does not exist yet",
    "World",
    world({ snapshot: { exclude: [] } }),
    /unknown field "spec\.snapshot\.exclude"/,
  ],
  [
    "a Runtime's name in capitals",
    "World",
    world({ runtime: { name: "Fast" } }),
    /spec\.runtime\.name: .*must be the name of an object: lower-case letters/,
  ],
  ["both sources", "Sandbox", { world: { name: "w" }, image }, /spec: .*exactly one of world and image must be set/],
  ["no source", "Sandbox", {}, /spec: .*exactly one of world and image must be set/],
  [
    "a World's name of 64 characters",
    "Sandbox",
    { world: { name: "w".repeat(64) } },
    /spec\.world\.name: Too long: may not be more than 63/,
  ],
  [
    "a version below the genesis",
    "Sandbox",
    { world: { name: "w", version: -1 } },
    /spec\.world\.version: .*greater than or equal to 0/,
  ],
  [
    "an unknown mode",
    "Sandbox",
    sandbox({ mode: "Paused" }),
    /spec\.mode: Unsupported value: "Paused": supported values: "Running", "Hibernated"/,
  ],
  [
    "a Sandbox's negative ttl",
    "Sandbox",
    sandbox({ ttlSeconds: -1 }),
    /spec\.ttlSeconds: Invalid value: -1: .*greater than or equal to 1/,
  ],
  [
    "a Sandbox's ttl above its lifetime",
    "Sandbox",
    sandbox({ ttlSeconds: 61, maxLifetimeSeconds: 60 }),
    /spec\.ttlSeconds: .*ttlSeconds must not be greater than maxLifetimeSeconds/,
  ],
  [
    "an agent as a word",
    "Sandbox",
    sandbox({ agent: "claude" }),
    /spec\.agent: Invalid value: "string": .*must be of type object/,
  ],
  [
    "an agent who poses as a ServiceAccount",
    "Sandbox",
    sandbox({ agent: { id: "serviceaccount:a:b" } }),
    /spec\.agent\.id: .*without spaces and ':'/,
  ],
  [
    "an agent's name that would end its JSON",
    "Sandbox",
    sandbox({ agent: { id: 'x" y' } }),
    /must be printable characters without spaces/,
  ],
  [
    "a variable with value and Secret",
    "Sandbox",
    environment({ name: "A", value: "1", secretKeyRef: { name: "s", key: "k" } }),
    /spec\.env\[0\]: .*exactly one of value and secretKeyRef must be set/,
  ],
  [
    "a variable without value",
    "Sandbox",
    environment({ name: "A" }),
    /exactly one of value and secretKeyRef must be set/,
  ],
  [
    "a variable that begins with a digit",
    "Sandbox",
    environment({ name: "1A", value: "" }),
    /spec\.env\[0\]\.name: .*must be a variable name: letters, digits and '_'/,
  ],
  [
    "a variable named twice",
    "Sandbox",
    environment({ name: "A", value: "1" }, { name: "A", value: "2" }),
    /spec\.env\[1\]: Duplicate value/,
  ],
  ["65 variables", "Sandbox", environment(...variables(65)), /spec\.env: Too many: 65: must have at most 64 items/],
  [
    "a CPU in words",
    "Sandbox",
    sandbox({ resources: { cpu: "lots" } }),
    /spec\.resources\.cpu: .*must be a Kubernetes quantity above zero, such as 500m, 2 or 2Gi/,
  ],
  [
    "no memory at all",
    "Sandbox",
    sandbox({ resources: { memory: "0" } }),
    /spec\.resources\.memory: .*must be a Kubernetes quantity above zero/,
  ],
  [
    "negative memory",
    "Sandbox",
    sandbox({ resources: { memory: "-1Gi" } }),
    /must be a Kubernetes quantity above zero/,
  ],
  ["a negative CPU number", "Sandbox", sandbox({ resources: { cpu: -1 } }), /must be a Kubernetes quantity above zero/],
  [
    "a memory with an unknown unit",
    "Sandbox",
    sandbox({ resources: { memory: "2GB" } }),
    /must be a Kubernetes quantity above zero/,
  ],
  ["an unknown close policy", "Sandbox", sandbox({ closePolicy: "Drop" }), /supported values: "Snapshot", "Discard"/],
  ["a Runtime without hosts", "Runtime", {}, /spec: .*exactly one kind of host must be set: docker/],
  ["an empty list of hosts", "Runtime", { docker: { hosts: [] } }, /spec\.docker\.hosts: .*at least 1 items/],
  [
    "33 hosts",
    "Runtime",
    hosts(...Array.from({ length: 33 }, (_, i) => ({ name: `h${i}` }))),
    /spec\.docker\.hosts: Too many: 33: must have at most 32 items/,
  ],
  ["two hosts of one name", "Runtime", hosts({}, {}), /spec\.docker\.hosts\[1\]: Duplicate value/],
  [
    "an endpoint of an unknown scheme",
    "Runtime",
    hosts({ endpoint: "ssh://me@host" }),
    /spec\.docker\.hosts\[0\]\.endpoint: .*must be unix:\/\/\/path\/to\/socket or tcp:\/\/host:port/,
  ],
  [
    "an endpoint without a port",
    "Runtime",
    hosts({ endpoint: "tcp://host" }),
    /must be unix:\/\/\/path\/to\/socket or tcp:\/\/host:port/,
  ],
  [
    "TLS on a socket",
    "Runtime",
    hosts({ tlsSecretRef: { name: "tls" } }),
    /tlsSecretRef: .*tlsSecretRef belongs to a tcp:\/\/ endpoint only/,
  ],
  ["an unknown selection", "Runtime", runtime({ selection: "Any" }), /supported values: "Default", "ByName"/],
  [
    "a selector In nothing",
    "Runtime",
    runtime({ namespaces: { matchExpressions: [{ key: "a", operator: "In" }] } }),
    /values must be set for In and NotIn/,
  ],
  [
    "the host's network",
    "Runtime",
    runtime({ isolation: { network: "Host" } }),
    /supported values: "Isolated", "None"/,
  ],
  [
    "a limit of one process",
    "Runtime",
    runtime({ isolation: { pidsLimit: 1 } }),
    /spec\.isolation\.pidsLimit: .*greater than or equal to 16/,
  ],
  [
    "a memory default in words",
    "Runtime",
    runtime({ isolation: { memory: "plenty" } }),
    /must be a Kubernetes quantity above zero/,
  ],
  [
    "no room for a Sandbox",
    "Runtime",
    runtime({ capacity: { maxSandboxes: 0 } }),
    /spec\.capacity\.maxSandboxes: .*greater than or equal to 1/,
  ],
  [
    "a rescue that is over at once",
    "Runtime",
    runtime({ rescueSeconds: 0 }),
    /spec\.rescueSeconds: .*greater than or equal to 1/,
  ],
];

/** The least spec of each kind. */
export const minimal: Readonly<Record<Kind, Json>> = { World: world(), Sandbox: sandbox(), Runtime: runtime() };

/** Changes of a spec by merge patch; refused with the sentence, or accepted where there is none. */
export const changes: [what: string, kind: Kind, spec: Json, change: Json, sentence: RegExp | undefined][] = [
  [
    "a World's source",
    "World",
    world(),
    { from: { image: "alpine:3" } },
    /spec\.from: Forbidden: from cannot be changed after creation: create another World/,
  ],
  [
    "a Sandbox's World",
    "Sandbox",
    sandbox(),
    { world: { name: "other" } },
    /spec\.world: Forbidden: world cannot be set, changed or removed after creation: create another Sandbox/,
  ],
  ["a version set later", "Sandbox", sandbox(), { world: { version: 3 } }, /spec\.world: Forbidden/],
  [
    "a World for an image",
    "Sandbox",
    { image },
    { image: null, world: { name: "w" } },
    /spec\.world: Forbidden: .*spec\.image: Forbidden/s,
  ],
  [
    "another image",
    "Sandbox",
    { image },
    { image: "alpine:3" },
    /spec\.image: Forbidden: image cannot be set, changed or removed/,
  ],
  [
    "a Runtime set later",
    "Sandbox",
    sandbox(),
    { runtime: { name: "r" } },
    /spec\.runtime: Forbidden: runtime cannot be set, changed or removed/,
  ],
  ["a Runtime removed", "Sandbox", sandbox({ runtime: { name: "r" } }), { runtime: null }, /spec\.runtime: Forbidden/],
  [
    "an agent set later",
    "Sandbox",
    sandbox(),
    { agent: { id: "a" } },
    /spec\.agent: Forbidden: agent cannot be set, changed or removed/,
  ],
  [
    "an agent's conversation removed",
    "Sandbox",
    sandbox({ agent: { id: "a", conversation: "c" } }),
    { agent: { conversation: null } },
    /spec\.agent: Forbidden/,
  ],
  [
    "mode, times, environment and policy of a Sandbox",
    "Sandbox",
    sandbox(),
    {
      mode: "Hibernated",
      ttlSeconds: 5,
      maxLifetimeSeconds: 50,
      env: [{ name: "A", value: "1" }],
      closePolicy: "Discard",
      resources: { cpu: 1 },
    },
    undefined,
  ],
  [
    "prose, times and retention of a World",
    "World",
    world(),
    {
      description: "d",
      session: { ttlSeconds: 5 },
      retention: { keepVersions: 0, pinned: [1] },
      runtime: { name: "r" },
      deletionPolicy: "Delete",
    },
    undefined,
  ],
];
