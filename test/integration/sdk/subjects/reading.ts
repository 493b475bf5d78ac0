/** What exists, who may see it, and Worlds. */
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import {
  AgentWorlds,
  ConflictError,
  NotFoundError,
  NotReadyError,
  PermissionError,
} from "../../../../sdk/src/index.ts";
import { LAB, type Lab } from "../../gateway/fixture.ts";
import { condition, digest, type PlayedController } from "../played-controller.ts";
import { exists, refused, type Stand } from "./stand.ts";

export function reading(stand: () => Stand): void {
  describe("reading", () => {
    let lab: Lab;
    let controller: PlayedController;
    let worlds: AgentWorlds;
    before(() => {
      ({ lab, controller, worlds } = stand());
    });

    test("get attaches to what exists, list shows it, and what does not exist is NotFound", async () => {
      await lab.sandbox("attached", { status: { conditions: [condition("Ready", "True", "Running", "boot 1")] } });
      assert.equal((await (await worlds.sandboxes.get("attached")).exec(["echo", "hi"])).stdout, "hi");
      assert.equal((await worlds.sandboxes.waitReady("attached")).name, "attached");
      assert.ok(await exists(worlds, "attached"));
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
      assert.equal(await exists(worlds, "unseen"), false);
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
  });
}
