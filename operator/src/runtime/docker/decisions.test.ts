import assert from "node:assert/strict";
import { test } from "node:test";
import { parseEngineAddress } from "./address.ts";
import { hostFacts, hostInfo } from "./capabilities.ts";
import { observe } from "./containers.ts";
import { registryAuth, withoutCredentials } from "./credentials.ts";
import { parseImageReference, registryOf } from "./image-reference.ts";
import { isSameBoot, labelsOf, ownerOf } from "./labels.ts";
import { choosePruned } from "./prune.ts";

const owner = { installation: "i", namespace: "n", sandbox: "s", sandboxUid: "u", boot: 3 };

test("an owner reads back from its labels; anything missing or odd is nobody's", () => {
  const labels = labelsOf(owner);
  assert.deepEqual(ownerOf(labels), owner);
  for (const key of Object.keys(labels)) {
    const { [key]: _, ...rest } = labels;
    assert.equal(ownerOf(rest), undefined, key);
  }
  for (const boot of ["0", "-1", "1.5", "x", ""])
    assert.equal(ownerOf({ ...labels, "agentworlds.dev/boot": boot }), undefined);
});

test("only the same installation, Sandbox UID and boot is the same boot", () => {
  const labels = labelsOf(owner);
  assert.ok(isSameBoot(labels, { ...owner, sandbox: "renamed" }));
  for (const change of [{ installation: "j" }, { sandboxUid: "v" }, { boot: 4 }])
    assert.equal(isSameBoot(labels, { ...owner, ...change }), false, JSON.stringify(change));
});

test("an image name is cut at its tag or digest, never at a port", () => {
  const cases: [string, string, string, string][] = [
    ["busybox", "busybox", "latest", "https://index.docker.io/v1/"],
    ["team/app:1", "team/app", "1", "https://index.docker.io/v1/"],
    ["localhost:5000/a/b", "localhost:5000/a/b", "latest", "localhost:5000"],
    ["localhost/a:2", "localhost/a", "2", "localhost"],
    ["r.example/a/b:v1@sha256:ab", "r.example/a/b", "sha256:ab", "r.example"],
    ["r.example:5000/a@sha256:ab", "r.example:5000/a", "sha256:ab", "r.example:5000"],
  ];
  for (const [image, repository, reference, registry] of cases) {
    assert.deepEqual(parseImageReference(image), { repository, reference }, image);
    assert.equal(registryOf(repository), registry, image);
  }
});

test("an engine's words carry no password, encoded or not, and no userinfo", () => {
  const login = { username: "ann", password: "p@ss/1" };
  const words = `Get https://ann:x@r/v2: p@ss/1 ${encodeURIComponent("p@ss/1")} Basic ${Buffer.from("ann:p@ss/1").toString("base64")}`;
  assert.equal(withoutCredentials(words, login), "Get https://r/v2: *** *** Basic ***");
  assert.equal(withoutCredentials("https://a:b@r/x", undefined), "https://r/x");
});

test("credentials for a call name the registry; without a login the header is an empty object", () => {
  const decode = (headers: Readonly<Record<string, string>>) =>
    JSON.parse(Buffer.from(headers["x-registry-auth"] ?? "", "base64url").toString());
  assert.deepEqual(decode(registryAuth({ username: "u", password: "p" }, "r")), {
    username: "u",
    password: "p",
    serveraddress: "r",
  });
  assert.deepEqual(decode(registryAuth(undefined, "r")), {});
});

test("unused images of the prefix go, oldest first, until enough remain; others stay", () => {
  const image = (Id: string, Created: number, ...names: string[]) => ({
    Id,
    Created,
    RepoTags: names,
    RepoDigests: [],
  });
  const images = [
    image("new", 30, "r/p/a:v3"),
    image("used", 10, "r/p/a:v1"),
    image("old", 20, "r/p/a:v2", "elsewhere:1"),
    image("other", 1, "r/pq/a:v1"),
    image("none", 1),
  ];
  const used = new Set(["used"]);
  const pruned = (keep: number) => choosePruned(images, { repositoryPrefix: "r/p", keep, used });
  assert.deepEqual(pruned(3), []);
  assert.deepEqual(pruned(2), ["r/p/a:v2"]);
  assert.deepEqual(pruned(0), ["r/p/a:v2", "r/p/a:v3"]);
  assert.deepEqual(choosePruned(images, { repositoryPrefix: "", keep: 0, used }), []);
});

test("an engine's address is a socket, or a host with or without TLS", () => {
  const tls = { ca: "a", cert: "b", key: "c" };
  assert.deepEqual(parseEngineAddress("unix:///var/run/docker.sock"), { kind: "unix", path: "/var/run/docker.sock" });
  assert.deepEqual(parseEngineAddress("tcp://h:1"), { kind: "tcp", host: "h", port: 1 });
  assert.deepEqual(parseEngineAddress("tcp://h", tls), { kind: "tcp", host: "h", port: 2376, tls });
  assert.deepEqual(parseEngineAddress("https://h:443", tls), { kind: "tcp", host: "h", port: 443, tls });
  for (const bad of ["", "unix://", "ssh://h", "h:2375", "tcp://u:p@h:1", "https://h"])
    assert.throws(() => parseEngineAddress(bad), TypeError, bad);
});

const info = {
  ServerVersion: "20.10.24",
  OSType: "linux",
  Architecture: "x86_64",
  NCPU: 2,
  MemTotal: 1024,
  MemoryLimit: true,
  CpuCfsQuota: true,
  PidsLimit: true,
  BridgeNfIptables: true,
  CgroupDriver: "cgroupfs",
  Runtimes: { runc: {}, "io.containerd.runc.v2": {} },
  Plugins: { Network: ["bridge"] },
};
const capabilities = (change: object) => hostFacts(hostInfo.parse({ ...info, ...change })).capabilities;

test("a capability is offered only where the host has it", () => {
  assert.ok(!capabilities({}).includes("ociRuntime"));
  assert.ok(capabilities({ Runtimes: { runc: {}, runsc: {} } }).includes("ociRuntime"));
  assert.ok(!capabilities({ CgroupDriver: "none" }).includes("freeze"));
  assert.ok(!capabilities({ MemoryLimit: false }).includes("memoryLimit"));
  assert.ok(!capabilities({ PidsLimit: false }).includes("pidsLimit"));
  assert.ok(!capabilities({ BridgeNfIptables: false }).includes("isolatedNetwork"));
  assert.ok(!capabilities({ Plugins: { Network: ["null"] } }).includes("isolatedNetwork"));
});

test("the OCI runtimes of a host are told by name, as many as a status holds", () => {
  const named = (Runtimes: object | null) => hostFacts(hostInfo.parse({ ...info, Runtimes })).ociRuntimes;
  assert.deepEqual(named({ runsc: {}, runc: {} }), ["runc", "runsc"]);
  assert.deepEqual(named(null), []);
  assert.deepEqual(named({ ["x".repeat(65)]: {}, "not a name": {}, runc: {} }), ["runc"]);
  assert.equal(named(Object.fromEntries(Array.from({ length: 40 }, (_, index) => [`r${index}`, {}]))).length, 32);
});

test("a host that cannot run sessions is refused by what it is", () => {
  assert.throws(() => hostFacts(hostInfo.parse({ ...info, OSType: "windows" })), /windows\/x86_64/);
  assert.throws(() => hostFacts(hostInfo.parse({ ...info, Architecture: "riscv64" })), /riscv64/);
});

test("an engine's words for a state become the contract's", () => {
  const container = (Status: string) => ({
    Id: "c",
    Image: "i",
    Config: { Labels: {} },
    State: {
      Status,
      ExitCode: 9,
      OOMKilled: true,
      StartedAt: "0001-01-01T00:00:00Z",
      FinishedAt: "2026-01-01T00:00:00Z",
    },
  });
  assert.deepEqual(observe(undefined), { state: "Absent" });
  assert.deepEqual(observe(container("created")), { state: "Created", startedAt: undefined });
  assert.equal(observe(container("running")).state, "Running");
  assert.equal(observe(container("paused")).state, "Frozen");
  for (const word of ["exited", "dead", "removing"])
    assert.deepEqual(observe(container(word)), {
      state: "Exited",
      exitCode: 9,
      outOfMemory: true,
      finishedAt: "2026-01-01T00:00:00Z",
    });
});
