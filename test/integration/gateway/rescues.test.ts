/** Rescues of a World through a real kube-apiserver: who may see, ask and take, and what an answer is. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { WORLDS, type WorldRequest, type WorldRequestResult, type WorldStatus, worldSchema } from "@agentworlds/crds";
import { GROUP, GROUP_VERSION } from "../../../operator/src/gateway/discovery.ts";
import { computeName } from "../../../operator/src/runtime/contract.ts";
import { eventually } from "../../kit/index.ts";
import { iso, LAB, type Lab, startLab } from "./fixture.ts";
import { TORN } from "./memory-driver.ts";
import type { Caller, RawAnswer } from "./raw-request.ts";

const OPERATION = "6f2c0a52-0000-4000-8000-000000000001";

describe("rescues through the gateway", () => {
  let lab: Lab;
  let owner: Caller;
  let reader: Caller;
  let viewer: Caller;

  before(async () => {
    lab = await startLab();
    await lab.gateway("gateway-a", { limits: { longPollMs: 1_500 } });
    await lab.grant("owner", { apiGroups: [GROUP], resources: ["*"], verbs: ["*"] });
    await lab.grant("reader", { apiGroups: ["*"], resources: ["*"], verbs: ["get", "list", "watch"] });
    await lab.grant("viewer", { apiGroups: [GROUP], resources: ["worlds/rescues"], verbs: ["get"] });
    owner = await lab.through({ user: "owner" });
    reader = await lab.through({ user: "reader" });
    viewer = await lab.through({ user: "viewer" });
    await lab.aggregated();
  });
  after(() => lab[Symbol.asyncDispose]());

  const path = (world: string, subresource: string): string =>
    `/apis/${GROUP_VERSION}/namespaces/${LAB}/worlds/${world}/${subresource}`;
  const ask = (who: Caller, world: string, body: unknown): Promise<RawAnswer> =>
    who.send({ method: "POST", target: path(world, "rescues"), body });
  const codeOf = (answer: RawAnswer): unknown => Object(answer.json["details"])["code"];

  const computeOf = (name: string): string => computeName({ sandboxUid: `uid-${name}`, boot: 1 });

  /** The host keeps this, as the container of a session of this namespace. */
  function keep(name: string, archive: Buffer | typeof TORN, namespace: string = LAB): void {
    lab.driver.archives.set(computeOf(name), archive);
    const owner = { installation: "install", namespace, sandbox: "one", sandboxUid: `uid-${name}`, boot: 1 };
    lab.driver.owners.set(computeOf(name), owner);
  }

  /** A World with a rescue, as its controller would have left it. */
  async function world(name: string): Promise<void> {
    const client = lab.kube.resource(WORLDS);
    const { signal } = lab;
    const object = {
      apiVersion: "agentworlds.dev/v1alpha1",
      kind: "World",
      metadata: { name, namespace: LAB },
      spec: { from: { image: "registry.example/base:1" } },
    };
    await client.create(object, { namespace: LAB, signal });
    const rescue = {
      operation: OPERATION,
      sandbox: { name: "one", uid: `uid-${name}` },
      runtime: "local",
      host: "one",
      computeId: computeOf(name),
      reason: "SnapshotFailed",
      message: "the registry does not answer",
      since: iso(Date.now()),
      expiresAt: iso(Date.now() + 86_400_000),
    };
    await client.patchStatus(
      { namespace: LAB, name },
      { status: { observedGeneration: 1, rescues: [rescue] } },
      { signal },
    );
  }

  const statusOf = async (name: string): Promise<WorldStatus> =>
    worldSchema.parse(await lab.kube.resource(WORLDS).get({ namespace: LAB, name }, { signal: lab.signal })).status;

  /** Plays the controller: answers the open request. */
  async function answers(name: string, result: Omit<WorldRequestResult, "at">): Promise<WorldRequest> {
    const asked = await eventually(
      async () => (await statusOf(name)).requests?.find((request) => request.result === undefined),
      { what: "a request" },
    );
    const { requests = [] } = await statusOf(name);
    const answered = requests.map((request) =>
      request.id === asked.id ? { ...request, result: { ...result, at: iso(Date.now()) } } : request,
    );
    await lab.kube
      .resource(WORLDS)
      .patchStatus({ namespace: LAB, name }, { status: { requests: answered } }, { signal: lab.signal });
    return asked;
  }

  test("who may get rescues sees what is kept and what was lost", async () => {
    await world("seen");
    const answer = await viewer.send({ target: path("seen", "rescues") });
    assert.equal(answer.status, 200, answer.bytes.toString());
    assert.equal(answer.json["kind"], "RescueList");
    assert.match(answer.bytes.toString(), new RegExp(OPERATION));
    assert.deepEqual(answer.json["lostWork"], []);
  });

  test("to ask for something takes create, and the record says who asked", async () => {
    await world("asked");
    const body = { id: "one", verb: "Retry", operation: OPERATION };
    for (const who of [viewer, reader]) assert.equal((await ask(who, "asked", body)).status, 403);
    const asking = ask(owner, "asked", body);
    const request = await answers("asked", { outcome: "Succeeded", version: 3, digest: `sha256:${"a".repeat(64)}` });
    assert.deepEqual([request.verb, request.parameters.operation, request.user], ["RetryRescue", OPERATION, "owner"]);
    const answer = await asking;
    assert.equal(answer.status, 200, answer.bytes.toString());
    assert.deepEqual([answer.json["done"], answer.json["version"]], [true, 3]);
    const again = await ask(owner, "asked", body);
    assert.equal(again.json["version"], 3, "the same id is the same wish");
    assert.equal((await statusOf("asked")).requests?.length, 1);
    assert.equal(codeOf(await ask(owner, "asked", { ...body, verb: "Discard" })), "IdReused");
    assert.equal(codeOf(await ask(owner, "asked", { ...body, operation: "another" })), "IdReused");
  });

  test("a wish that takes long is answered with 202, and the same id goes on waiting", async () => {
    await world("slow");
    const body = { id: "long", verb: "Export", operation: OPERATION };
    const first = await ask(owner, "slow", body);
    assert.deepEqual([first.status, first.json], [202, { id: "long", done: false }]);
    const image = `registry.example/w@sha256:${"b".repeat(64)}`;
    const waiting = ask(owner, "slow", body);
    await answers("slow", { outcome: "Succeeded", image });
    assert.equal((await waiting).json["image"], image);
  });

  const outcomes: [code: string, outcome: "Refused" | "Failed", status: number][] = [
    ["NoSuchRescue", "Refused", 404],
    ["WorkLost", "Refused", 409],
    ["RetryFailed", "Failed", 500],
  ];
  for (const [code, outcome, status] of outcomes) {
    test(`${code} is a ${status} with its words`, async () => {
      const name = `outcome-${status}`;
      await world(name);
      const asking = ask(owner, name, { verb: "Retry", operation: OPERATION });
      await answers(name, { outcome, code, message: "because of something" });
      const answer = await asking;
      assert.deepEqual([answer.status, codeOf(answer)], [status, code]);
      assert.match(answer.bytes.toString(), /because of something/);
    });
  }

  test("sixteen unanswered wishes are all a World holds", async () => {
    await world("full");
    const requests = Array.from({ length: 16 }, (_, index) => ({
      id: `r${index}`,
      verb: "RetryRescue",
      parameters: { operation: OPERATION },
      user: "owner",
      at: iso(Date.now()),
    }));
    await lab.kube
      .resource(WORLDS)
      .patchStatus({ namespace: LAB, name: "full" }, { status: { requests } }, { signal: lab.signal });
    const answer = await ask(owner, "full", { verb: "Retry", operation: OPERATION });
    assert.deepEqual([answer.status, codeOf(answer)], [429, "TooManyRequests"]);
  });

  const wrong: [name: string, body: unknown][] = [
    ["no verb", { operation: OPERATION }],
    ["a verb nobody knows", { verb: "Publish", operation: OPERATION }],
    ["no operation", { verb: "Discard" }],
    ["a field nobody knows", { verb: "Retry", operation: OPERATION, force: true }],
  ];
  for (const [name, body] of wrong) {
    test(`a wish with ${name} is a 400`, async () => assert.equal((await ask(owner, "any", body)).status, 400));
  }

  test("the archive of a kept container comes byte for byte, to who may create on proxy only", async () => {
    await world("archive");
    const archive = Buffer.concat([Buffer.alloc(1_000_000, 7), Buffer.alloc(1_024)]);
    keep("archive", archive);
    const target = path("archive", `proxy/rescues/${OPERATION}.tar`);
    const answer = await owner.send({ target });
    assert.equal(answer.status, 200);
    assert.equal(answer.headers["content-type"], "application/x-tar");
    assert.deepEqual(answer.bytes, archive);
    for (const who of [reader, viewer]) assert.equal((await who.send({ target })).status, 403);
  });

  test("an archive that breaks is cut off, never ended as if it were whole", async () => {
    await world("torn");
    keep("torn", TORN);
    await assert.rejects(owner.send({ target: path("torn", `proxy/rescues/${OPERATION}.tar`) }));
  });

  const change = async (name: string, rescue: Readonly<Record<string, unknown>>): Promise<void> => {
    const rescues = (await statusOf(name)).rescues?.map((one) => ({ ...one, ...rescue }));
    await lab.kube
      .resource(WORLDS)
      .patchStatus({ namespace: LAB, name }, { status: { rescues } }, { signal: lab.signal });
  };

  test("an archive of another tenant's container, which somebody wrote into the record, is handed out to nobody", async () => {
    keep("victim", Buffer.from("secret"), "vault");
    await world("forged");
    for (const rescue of [
      { computeId: computeOf("victim") },
      { computeId: computeOf("victim"), sandbox: { name: "one", uid: "uid-victim" } },
    ]) {
      await change("forged", rescue);
      const answer = await owner.send({ target: path("forged", `proxy/rescues/${OPERATION}.tar`) });
      assert.deepEqual([answer.status, codeOf(answer)], [409, "ForeignCompute"]);
    }
  });

  test("nor is one of a session that goes on, or of another World", async () => {
    const { metadata } = await lab.sandbox("busy");
    const computeId = await lab.computeOf("busy");
    lab.driver.archives.set(computeId, Buffer.from("secret"));
    const kept = { installation: "install", namespace: LAB, sandbox: "busy", sandboxUid: metadata.uid, boot: 1 };
    lab.driver.owners.set(computeId, kept);
    await world("busy");
    await change("busy", { computeId, sandbox: { name: "busy", uid: metadata.uid } });
    const answer = await owner.send({ target: path("busy", `proxy/rescues/${OPERATION}.tar`) });
    // The fixture's Sandbox runs a throwaway image, of no World.
    assert.deepEqual([answer.status, codeOf(answer)], [409, "ForeignCompute"]);
    await lab.sandbox("of-world", { spec: { image: null, world: { name: "busy" } } });
    const own = await lab.read("of-world");
    const id = await lab.computeOf("of-world");
    lab.driver.owners.set(id, { ...kept, sandbox: "of-world", sandboxUid: own.metadata.uid });
    await change("busy", { computeId: id, sandbox: { name: "of-world", uid: own.metadata.uid } });
    const running = await owner.send({ target: path("busy", `proxy/rescues/${OPERATION}.tar`) });
    assert.deepEqual([running.status, codeOf(running)], [409, "SessionEnding"]);
  });

  test("an archive of what is not kept, or of a container that is gone, is an error before the first byte", async () => {
    await world("gone");
    const unknown = await owner.send({ target: path("gone", "proxy/rescues/another.tar") });
    assert.deepEqual([unknown.status, codeOf(unknown)], [404, "NoSuchRescue"]);
    const gone = await owner.send({ target: path("gone", `proxy/rescues/${OPERATION}.tar`) });
    assert.deepEqual([gone.status, codeOf(gone)], [409, "ComputeNotFound"]);
  });

  test("the plugin does the same as kubectl starts it, with the caller's kubeconfig and a bare PATH", async () => {
    await world("plugin");
    const kubeconfig = await lab.cluster.kubeconfigFor({ user: "owner" });
    const plugin = new URL("../../../sdk/bin/kubectl-world", import.meta.url).pathname;
    const call = (...args: string[]) =>
      promisify(execFile)(plugin, ["rescue", ...args, "-n", LAB], {
        env: { PATH: "/usr/bin:/bin", KUBECONFIG: kubeconfig },
      });
    assert.match((await call("list", "plugin")).stdout, new RegExp(`${OPERATION}.*local/one`));
    const discarding = call("discard", "plugin", OPERATION);
    const { verb, user } = await answers("plugin", { outcome: "Succeeded" });
    assert.deepEqual([verb, user], ["DiscardRescue", "owner"]);
    assert.match((await discarding).stdout, /is discarded/);
  });
});
