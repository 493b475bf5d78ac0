/** How a session is created: what is waited for, what ends the wait, and what a key is. */
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { AgentWorlds, ConflictError, NotReadyError, type Progress, RequestError } from "../../../../sdk/src/index.ts";
import { eventually } from "../../../kit/index.ts";
import { LAB, type Lab } from "../../gateway/fixture.ts";
import { condition, type PlayedController } from "../played-controller.ts";
import { exists, refused, type Stand } from "./stand.ts";

export function creation(stand: () => Stand): void {
  describe("creation", () => {
    let lab: Lab;
    let controller: PlayedController;
    let worlds: AgentWorlds;
    before(() => {
      ({ lab, controller, worlds } = stand());
    });

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
      assert.equal(await exists(worlds, "stalls"), false);
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
      assert.equal(await exists(worlds, "lost"), false);
    });

    test("what did not become Ready stays where that was asked for", async () => {
      const wish = { world: "nowhere", name: "kept", graceMs: 100, ifNotReady: "Keep" } as const;
      const missing = condition("Admitted", "False", "RuntimeNotFound", "Runtime nowhere does not exist");
      await Promise.all([
        assert.rejects(worlds.sandboxes.create(wish), refused("RuntimeNotFound", NotReadyError)),
        controller.says("kept", { conditions: [missing] }),
      ]);
      assert.equal(await exists(worlds, "kept"), true);
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
      assert.equal(await exists(worlds, "queues"), false);
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
      assert.equal(await exists(worlds, "aborted"), false);
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
      assert.equal(await exists(worlds, "taken"), true);
    });
  });
}
