import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { GROUP } from "../../../operator/src/gateway/discovery.ts";
import type { Gateway } from "../../../operator/src/gateway/server.ts";
import {
  AgentWorlds,
  AgentWorldsError,
  ClosedError,
  ConflictError,
  NotFoundError,
  NotReadyError,
  PermissionError,
  type Progress,
  RequestError,
  type Session,
} from "../../../sdk/src/index.ts";
import { eventually } from "../../kit/index.ts";
import { LAB, type Lab, startLab } from "../gateway/fixture.ts";
import { condition, digest, PlayedController } from "./played-controller.ts";

const MINUTE = 60_000;

describe("the SDK against a real kube-apiserver and the real gateway", () => {
  let lab: Lab;
  let gateway: Gateway;
  let controller: PlayedController;
  let worlds: AgentWorlds;

  before(async () => {
    lab = await startLab();
    // Shorter than the controller's answer in the tests below, so that 202 and the next poll are part of them.
    gateway = await lab.gateway("gateway-a", { limits: { longPollMs: 400 } });
    await lab.aggregated();
    controller = new PlayedController(lab);
    worlds = new AgentWorlds({ kubeconfig: lab.cluster.kubeconfigPath, namespace: LAB });
  });
  after(async () => {
    await worlds.close();
    await lab[Symbol.asyncDispose]();
  });

  /** A session that the controller has made Ready. */
  async function readySession(name: string): Promise<Session> {
    const [session] = await Promise.all([worlds.sandboxes.create({ world: "hello", name }), controller.ready(name)]);
    return session;
  }
  const refused = (code: string, of: new (...facts: never[]) => AgentWorldsError = AgentWorldsError) => {
    return (error: unknown): boolean => {
      assert.ok(error instanceof of, `${error}`);
      assert.equal(error.code, code, error.message);
      return true;
    };
  };
  const exists = async (name: string): Promise<boolean> =>
    (await worlds.sandboxes.list()).some((sandbox) => sandbox.metadata.name === name);

  /** How many answered requests the audit log has for a verb of a session. */
  async function posts(name: string, subresource: string): Promise<number> {
    const lines = (await readFile(lab.cluster.auditLogPath, "utf8")).split("\n").filter((line) => line.endsWith("}"));
    return lines.filter((line) => {
      const { objectRef } = JSON.parse(line);
      return objectRef?.name === name && objectRef.subresource === subresource;
    }).length;
  }

  test("create waits for Ready, tells what it waits for, and the object says what was wished", async () => {
    const seen: Progress[] = [];
    const creating = worlds.sandboxes.create({
      world: "hello",
      name: "created",
      ttlSeconds: 600,
      maxLifetimeSeconds: 3_600,
      agent: { id: "coder", conversation: "7" },
      env: { PLAIN: "a=b", SECRET: { secretKeyRef: { name: "s", key: "k" } } },
      resources: { memory: "1Gi" },
      closePolicy: "Discard",
      runtime: "local",
      onProgress: (progress) => seen.push(progress),
    });
    const held = condition("Admitted", "False", "WorldHeld", "held by Sandbox other");
    await controller.says("created", { conditions: [held] });
    await eventually(() => seen.some(({ reason }) => reason === "WorldHeld"));
    await controller.says("created", { conditions: [condition("Ready", "False", "Provisioning", "boots")] });
    await eventually(() => seen.some(({ reason }) => reason === "Provisioning"));
    await controller.ready("created");
    const session = await creating;
    assert.equal(session.name, "created");
    assert.equal(session.namespace, LAB);
    const { spec, status } = await lab.read("created");
    assert.equal(session.expiresAt?.toISOString(), status.expiresAt);
    assert.deepEqual(spec, {
      world: { name: "hello" },
      runtime: { name: "local" },
      mode: "Running",
      ttlSeconds: 600,
      maxLifetimeSeconds: 3_600,
      agent: { id: "coder", conversation: "7" },
      env: [
        { name: "PLAIN", value: "a=b" },
        { name: "SECRET", secretKeyRef: { name: "s", key: "k" } },
      ],
      resources: { memory: "1Gi" },
      closePolicy: "Discard",
      rescuePolicy: "Wait",
      ttlSecondsAfterClosed: 600,
    });
    assert.deepEqual(
      seen.map(({ reason }) => reason).filter((reason) => reason !== "Pending"),
      ["WorldHeld", "Provisioning"],
    );
  });

  test("a creation that stalls is a typed error at once, with the controller's reason, and leaves nothing behind", async () => {
    const creating = worlds.sandboxes.create({ world: "hello", name: "stalls" });
    await Promise.all([
      assert.rejects(creating, (error) => {
        assert.ok(error instanceof NotReadyError);
        assert.equal(error.code, "CapabilityMissing");
        assert.match(error.message, /Runtime local lacks ociRuntime/);
        assert.deepEqual(error.object, { kind: "Sandbox", namespace: LAB, name: "stalls" });
        assert.ok(error.remediation);
        return true;
      }),
      controller.stalled("stalls", "CapabilityMissing", "Runtime local lacks ociRuntime"),
    ]);
    assert.equal(await exists("stalls"), false);
  });

  test("a World that does not exist is told after the grace, not at the deadline, and nothing is left behind", async () => {
    const missing = condition("Admitted", "False", "WorldNotFound", "World nowhere does not exist; create it");
    const begun = performance.now();
    const creating = worlds.sandboxes.create({ world: "nowhere", name: "lost", graceMs: 300 });
    await Promise.all([
      assert.rejects(creating, (error) => {
        assert.ok(error instanceof NotReadyError);
        assert.deepEqual([error.code, error.cause], ["WorldNotFound", missing.message]);
        assert.match(error.message, /World nowhere does not exist; create it/);
        assert.ok(error.remediation);
        return true;
      }),
      controller.says("lost", { conditions: [missing] }),
    ]);
    assert.ok(performance.now() - begun < 30_000, "long before the deadline of 5 minutes");
    assert.equal(await exists("lost"), false);
  });

  test("what did not become Ready stays where that was asked for", async () => {
    const wish = { world: "nowhere", name: "kept", graceMs: 100, ifNotReady: "Keep" } as const;
    const missing = condition("Admitted", "False", "RuntimeNotFound", "Runtime nowhere does not exist");
    await Promise.all([
      assert.rejects(worlds.sandboxes.create(wish), refused("RuntimeNotFound", NotReadyError)),
      controller.says("kept", { conditions: [missing] }),
    ]);
    assert.equal(await exists("kept"), true);
  });

  test("a wait that is too long says what it waited for, and leaves nothing behind", async () => {
    const creating = worlds.sandboxes.create({ world: "hello", name: "queues", timeoutMs: 2_000 });
    const held = condition("Admitted", "False", "WorldHeld", "held by Sandbox other");
    await Promise.all([
      assert.rejects(creating, (error) => {
        assert.ok(error instanceof NotReadyError);
        assert.deepEqual([error.code, error.reason], ["DeadlineExceeded", "WorldHeld"]);
        assert.match(error.message, /held by Sandbox other/);
        return true;
      }),
      controller.says("queues", { conditions: [held] }),
    ]);
    assert.equal(await exists("queues"), false);
  });

  test("a Sandbox that is deleted while its Ready is waited for is told", async () => {
    const creating = worlds.sandboxes.create({ world: "hello", name: "vanishes" });
    await Promise.all([
      assert.rejects(creating, refused("NotFound", NotReadyError)),
      controller
        .says("vanishes", {})
        .then(() => lab.sandboxes.delete({ namespace: LAB, name: "vanishes" }, { signal: lab.signal })),
    ]);
  });

  test("an abort ends the creation with the caller's reason, and nothing is left behind", async () => {
    const caller = new AbortController();
    const creating = worlds.sandboxes.create({ world: "hello", name: "aborted", signal: caller.signal });
    const reason = new Error("the user went home");
    await Promise.all([
      assert.rejects(creating, (error) => error === reason),
      controller.says("aborted", {}).then(() => caller.abort(reason)),
    ]);
    assert.equal(await exists("aborted"), false);
  });

  test("what the API server refuses is told in its own sentence", async () => {
    await assert.rejects(
      worlds.sandboxes.create({ world: "hello", name: "wrong", ttlSeconds: -1 }),
      (error) => error instanceof RequestError && error.status === 422 && /ttlSeconds/.test(error.message),
    );
  });

  test("the same key is the same session, in two clients at once", async () => {
    await using other = new AgentWorlds({ kubeconfig: lab.cluster.kubeconfigPath, namespace: LAB });
    const wish = { world: "hello", key: "conversation-7", agent: "coder" } as const;
    const [one, two] = await Promise.all([
      worlds.sandboxes.create(wish),
      other.sandboxes.create(wish),
      controller.ready("hello-650572fb97"),
    ]);
    assert.equal(one.name, "hello-650572fb97");
    assert.equal(two.name, one.name);
    await assert.rejects(worlds.sandboxes.create({ ...wish, agent: "other" }), refused("KeyReused", ConflictError));
  });

  test("without a key each call makes a session of its own", async () => {
    const before = new Set((await worlds.sandboxes.list()).map(({ metadata }) => metadata.name));
    const creating = Promise.all([1, 2].map(() => worlds.sandboxes.create({ image: "registry.example/base:1" })));
    const names = await eventually(async () => {
      const all = (await worlds.sandboxes.list()).map(({ metadata }) => metadata.name);
      const fresh = all.filter((name) => !before.has(name));
      return fresh.length === 2 ? fresh : undefined;
    });
    await Promise.all(names.map((name) => controller.ready(name)));
    assert.deepEqual((await creating).map(({ name }) => name).sort(), names.sort());
  });

  test("a creation with a key that was given up stays, and the next one with it goes on waiting", async () => {
    const wish = { world: "hello", name: "resumed", key: "k" } as const;
    await assert.rejects(worlds.sandboxes.create({ ...wish, timeoutMs: 1_000 }), refused("DeadlineExceeded"));
    const [session] = await Promise.all([worlds.sandboxes.create(wish), controller.ready("resumed")]);
    assert.equal(session.name, "resumed");
  });

  test("the same key wakes a session that sleeps", async () => {
    const wish = { world: "hello", name: "sleeper", key: "k" } as const;
    await Promise.all([worlds.sandboxes.create(wish), controller.ready("sleeper")]);
    await controller.hibernated("sleeper");
    const conditions = [condition("Ready", "True", "Running", "boot 2 on local/one")];
    const awake = await controller.running("sleeper");
    const [session] = await Promise.all([
      worlds.sandboxes.create(wish),
      controller.answers("sleeper", "Touch", { outcome: "Succeeded" }, { ...awake, boot: 2, conditions }),
    ]);
    assert.equal(session.expiresAt?.toISOString(), (await lab.read("sleeper")).status.expiresAt);
  });

  test("a name that somebody else has is not taken over", async () => {
    await lab.sandbox("taken");
    await assert.rejects(
      worlds.sandboxes.create({ world: "hello", name: "taken" }),
      refused("NameTaken", ConflictError),
    );
    assert.equal(await exists("taken"), true);
  });

  test("exec returns exit code and both streams, byte by byte, and extends the session", async () => {
    const session = await readySession("exec");
    const stdin = randomBytes(100_000);
    const result = await session.exec(["cat"], {
      stdin,
      env: { A: "b" },
      workingDir: "/tmp",
      user: "1000",
      timeoutSeconds: 5,
    });
    assert.equal(result.exitCode, 0);
    assert.equal(result.signal, 0);
    assert.equal(result.timedOut, false);
    assert.deepEqual(Buffer.from(result.stdoutBytes), stdin);
    assert.equal(result.stderr, "");
    assert.equal(result.durationMs, 1);
    assert.deepEqual(session.expiresAt, result.expiresAt);
    assert.ok(result.expiresAt);
    const request = lab.driver.execs.at(-1)?.request;
    assert.deepEqual(
      [request?.env, request?.workingDir, request?.user, request?.timeoutMs],
      [{ A: "b" }, "/tmp", "1000", 5_000],
    );
    assert.equal((await session.exec(["echo", "grüß", "dich"])).stdout, "grüß dich");
    assert.equal(lab.driver.execs.at(-1)?.request.timeoutMs, 50_000, "the default fits below kube-apiserver's cut");
  });

  test("a command as text goes to a shell", async () => {
    const session = await readySession("shell");
    await assert.rejects(session.exec("echo $HOME | wc -c"), refused("CommandNotStarted", RequestError));
    assert.deepEqual(lab.driver.execs.at(-1)?.request.command, ["/bin/sh", "-c", "echo $HOME | wc -c"]);
  });

  test("a command longer than kube-apiserver's cut is refused with what to do, and runs by the gateway's own endpoint", async () => {
    await readySession("long");
    const session = await worlds.sandboxes.get("long");
    await assert.rejects(session.exec(["echo", "x"], { timeoutSeconds: 51 }), (error) => {
      assert.ok(error instanceof RequestError);
      assert.equal(error.code, "TimeoutTooLong");
      assert.match(error.remediation ?? "", /at most 50.*own endpoint/);
      return true;
    });
    const { token, user } = await lab.serviceAccount("direct");
    await lab.grant(user, { apiGroups: [GROUP, "agentworlds.dev"], resources: ["*"], verbs: ["*"] });
    await using direct = new AgentWorlds({
      server: lab.cluster.url,
      ca: lab.cluster.caPem,
      token,
      namespace: LAB,
      gateway: { url: `https://localhost:${gateway.port}`, ca: gateway.caBundle },
    });
    const result = await (await direct.sandboxes.get("long")).exec(["echo", "x"], { timeoutSeconds: 120 });
    assert.equal(result.stdout, "x");
    assert.equal(lab.driver.execs.at(-1)?.request.timeoutMs, 120_000);
  });

  test("aborting a command ends it in the session too", async (t) => {
    const session = await readySession("abort-exec");
    const ran = t.mock.method(lab.driver.driver, "exec");
    const caller = new AbortController();
    const waiting = session.exec(["wait", String(10 * MINUTE)], { signal: caller.signal });
    const reason = new Error("enough");
    await Promise.all([
      assert.rejects(waiting, (error) => error === reason),
      eventually(() => ran.mock.callCount() === 1).then(() => caller.abort(reason)),
    ]);
    await eventually(() => ran.mock.calls[0]?.arguments[2].aborted === true, { what: "the command being ended" });
  });

  test("too much output is an error that names the way, never a cut", async () => {
    const session = await readySession("flood");
    await assert.rejects(session.exec(["flood"]), refused("OutputTooLarge", RequestError));
  });

  test("files go in and out byte by byte, whatever their names", async () => {
    const session = await readySession("files");
    const content = randomBytes(300_000);
    for (const path of ["/data/plain", "/a b;c+d&e=f?g#h%i/é\u{1f511}", Buffer.from([0x2f, 0xff, 0xfe])]) {
      await session.writeFile(path, content, { mode: 0o600 });
      assert.deepEqual(Buffer.from(await session.readFile(path)), content);
    }
    await session.writeFile("/text", "\ufeffgrüß dich\n");
    assert.equal(await session.readTextFile("/text"), "\ufeffgrüß dich\n");
    await session.writeFile("/empty", "");
    assert.equal((await session.readFile("/empty")).length, 0);
    await assert.rejects(session.readTextFile("/data/plain"), refused("NotUtf8"));
    await assert.rejects(session.readFile("/none"), refused("FileNotFound", NotFoundError));
    await assert.rejects(session.readFile("relative"), refused("BadPath", RequestError));
    await assert.rejects(session.readFile("/data/plain", { maxBytes: 1_000 }), refused("AnswerTooLarge"));
  });

  test("a touch extends to what is stated and not beyond the lifetime", async () => {
    const session = await readySession("touched");
    const { expiresAt, lifetimeEndsAt } = await session.touch({ ttlSeconds: 3_600 });
    assert.ok(expiresAt && expiresAt.getTime() > Date.now() + 50 * MINUTE);
    assert.ok(lifetimeEndsAt && lifetimeEndsAt > expiresAt);
    assert.deepEqual(session.expiresAt, expiresAt);
    await assert.rejects(session.touch({ ttlSeconds: 86_400 }), refused("BeyondLifetime", RequestError));
  });

  test("work in a session that sleeps is refused with what to do; a touch wakes it and returns when it is Ready", async () => {
    const session = await readySession("woken");
    await controller.hibernated("woken");
    await assert.rejects(session.exec(["echo"]), (error) => {
      assert.ok(error instanceof ConflictError);
      assert.equal(error.code, "Hibernated");
      assert.match(error.remediation ?? "", /touch/);
      return true;
    });
    const seen: string[] = [];
    const touching = session.touch({ onProgress: ({ reason }) => seen.push(reason) });
    await eventually(() => seen.includes("Waking"), { what: "the wake being told" });
    const conditions = [condition("Ready", "True", "Running", "boot 2 on local/one")];
    const awake = { ...(await controller.running("woken")), boot: 2, conditions };
    await controller.answers("woken", "Touch", { outcome: "Succeeded" }, awake);
    assert.equal((await touching).expiresAt?.toISOString(), awake.expiresAt);
  });

  test("a snapshot is polled with one id until it is made", async () => {
    const session = await readySession("snapped");
    const snapping = session.snapshot({ description: "tools installed" });
    const asked = await controller.asked("snapped", "Snapshot");
    // The first poll has ended in 202, and another one came.
    await eventually(async () => (await posts("snapped", "snapshot")) >= 2, { what: "a second poll" });
    await controller.answers("snapped", "Snapshot", { outcome: "Succeeded", version: 4, digest: digest("a") });
    assert.deepEqual(await snapping, { version: 4, digest: digest("a") });
    const { requests } = (await lab.read("snapped")).status;
    assert.deepEqual(
      requests?.map(({ id, parameters }) => [id, parameters]),
      [[asked.id, { description: "tools installed" }]],
    );
  });

  test("a snapshot that failed is told with the controller's reason, and not asked for again", async () => {
    const session = await readySession("snap-fails");
    await Promise.all([
      assert.rejects(session.snapshot(), refused("RegistryUnavailable", RequestError)),
      controller.answers("snap-fails", "Snapshot", {
        outcome: "Failed",
        code: "RegistryUnavailable",
        message: "the registry is down",
      }),
    ]);
    assert.equal((await lab.read("snap-fails")).status.requests?.length, 1);
  });

  test("close returns the version the session ended in, and the same when asked again", async () => {
    const session = await readySession("closes");
    const [closed] = await Promise.all([
      session.close(),
      controller.closed("closes", { version: 5, digest: digest("b") }),
    ]);
    assert.deepEqual(closed, { version: 5, digest: digest("b") });
    assert.deepEqual(await session.close(), closed);
    assert.equal(session.expiresAt, undefined);
    await assert.rejects(session.exec(["echo"]), refused("Closed", ClosedError));
    // Another process that had lost the answer reads it again.
    assert.deepEqual(await (await worlds.sandboxes.get("closes")).close(), closed);
    await assert.rejects(worlds.sandboxes.waitReady("closes"), refused("Closed", NotReadyError));
  });

  test("a close may discard what the session would have saved", async () => {
    const session = await readySession("discards");
    const [closed, asked] = await Promise.all([
      session.close({ policy: "Discard" }),
      controller.closed("discards", {}),
    ]);
    assert.deepEqual(closed, { version: undefined, digest: undefined });
    assert.equal(asked.parameters?.discard, "Discard");
  });

  test("await using closes the session, and one that is gone is closed", async () => {
    const playing = controller.closed("scoped", { version: 6, digest: digest("c") });
    {
      await using session = await readySession("scoped");
      await session.exec(["echo", "x"]);
    }
    await playing;
    assert.equal((await lab.read("scoped")).status.closed?.version, 6);
    {
      await using session = await readySession("scoped-gone");
      await lab.sandboxes.delete({ namespace: LAB, name: session.name }, { signal: lab.signal });
    }
  });

  test("get attaches to what exists, list shows it, and what does not exist is NotFound", async () => {
    await lab.sandbox("attached", { status: { conditions: [condition("Ready", "True", "Running", "boot 1")] } });
    assert.equal((await (await worlds.sandboxes.get("attached")).exec(["echo", "hi"])).stdout, "hi");
    assert.equal((await worlds.sandboxes.waitReady("attached")).name, "attached");
    assert.ok(await exists("attached"));
    await assert.rejects(worlds.sandboxes.get("nowhere"), refused("NotFound", NotFoundError));
    await assert.rejects(worlds.sandboxes.get("../secrets"), refused("BadName"));
  });

  test("a stranger is refused by the cluster's own rules, with the right that is missing", async () => {
    const kubeconfig = await lab.cluster.kubeconfigFor({ user: "stranger" });
    await lab.grant("stranger", { apiGroups: ["agentworlds.dev"], resources: ["sandboxes"], verbs: ["get"] });
    await using stranger = new AgentWorlds({ kubeconfig, namespace: LAB });
    await lab.sandbox("private");
    const session = await stranger.sandboxes.get("private");
    await assert.rejects(session.exec(["echo"]), (error) => {
      assert.ok(error instanceof PermissionError);
      assert.match(error.message, /sandboxes\/exec/);
      assert.ok(error.remediation);
      return true;
    });
    await assert.rejects(stranger.worlds.list(), PermissionError);
  });

  test("a creation that may not be watched leaves nothing behind", async () => {
    const kubeconfig = await lab.cluster.kubeconfigFor({ user: "blind" });
    const verbs = ["create", "get", "delete"];
    await lab.grant("blind", { apiGroups: ["agentworlds.dev"], resources: ["sandboxes"], verbs });
    await using blind = new AgentWorlds({ kubeconfig, namespace: LAB });
    await assert.rejects(blind.sandboxes.create({ world: "hello", name: "unseen" }), PermissionError);
    assert.equal(await exists("unseen"), false);
  });

  test("a World is created, waited for and listed; a stalled one is a typed error", async () => {
    const made = await worlds.worlds.create({
      name: "fresh",
      from: { image: "127.0.0.1:5055/base/busybox:latest" },
      description: "a test",
    });
    assert.equal(made.metadata.name, "fresh");
    const ready = condition("Ready", "True", "Available", "version 0 is head");
    const head = { version: 0, digest: digest("d"), image: `127.0.0.1:5055/x@${digest("d")}` };
    const [world] = await Promise.all([
      worlds.worlds.waitReady("fresh"),
      controller.worldSays("fresh", { observedGeneration: 1, conditions: [ready], head }),
    ]);
    assert.deepEqual(world.status.head, head);
    assert.deepEqual((await worlds.worlds.get("fresh")).status.head, head);
    assert.deepEqual(
      (await worlds.worlds.list()).map(({ metadata }) => metadata.name),
      ["fresh"],
    );
    const again = worlds.worlds.create({ name: "fresh", from: { image: "registry.example/other:1" } });
    await assert.rejects(again, refused("NameTaken", ConflictError));

    await worlds.worlds.create({ name: "broken", from: { image: "registry.example/none:1" } });
    const why = ["ImageNotFound", "registry.example/none:1 does not exist"] as const;
    const conditions = [condition("Ready", "False", ...why), condition("Stalled", "True", ...why)];
    await Promise.all([
      assert.rejects(worlds.worlds.waitReady("broken"), refused("ImageNotFound", NotReadyError)),
      controller.worldSays("broken", { conditions }),
    ]);
    await assert.rejects(worlds.worlds.waitReady("missing"), refused("NotFound", NotReadyError));
  });

  test("a restart of the API server is waited out by whoever waits for Ready", async () => {
    const creating = worlds.sandboxes.create({ world: "hello", name: "patient", timeoutMs: 2 * MINUTE });
    await controller.says("patient", { conditions: [condition("Admitted", "False", "RuntimeFull", "20 of 20")] });
    await lab.cluster.restartApiServer();
    await eventually(() => controller.ready("patient"), { what: "the controller being able to write" });
    assert.equal((await creating).name, "patient");
    await lab.aggregated();
  });

  test("without a gateway the error says so, and not that the Sandbox is missing", async () => {
    const session = await readySession("orphaned");
    await gateway.stop();
    await eventually(async () => !(await lab.registered()));
    const codes = new Set<string>();
    // The API server forgets the withdrawn API a moment later; until then it answers 503.
    await eventually(async () => {
      const error = await session.exec(["echo"]).catch((caught: unknown) => caught);
      assert.ok(error instanceof RequestError, `${error}`);
      codes.add(error.code);
      return error instanceof NotFoundError;
    });
    assert.ok(codes.delete("SessionsApiMissing"));
    assert.ok(
      [...codes].every((code) => code === "GatewayUnavailable"),
      [...codes].join(),
    );
  });
});
