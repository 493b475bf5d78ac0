/** The API server restarts, the gateway goes away. The last subject: what it ends stays ended. */
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import type { Gateway } from "../../../../operator/src/gateway/server.ts";
import { type AgentWorlds, NotFoundError, RequestError } from "../../../../sdk/src/index.ts";
import { eventually } from "../../../kit/index.ts";
import type { Lab } from "../../gateway/fixture.ts";
import { condition, type PlayedController } from "../played-controller.ts";
import { readySession, type Stand } from "./stand.ts";

const MINUTE = 60_000;

export function outages(stand: () => Stand): void {
  describe("outages", () => {
    let lab: Lab;
    let gateway: Gateway;
    let controller: PlayedController;
    let worlds: AgentWorlds;
    before(() => {
      ({ lab, gateway, controller, worlds } = stand());
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
      const session = await readySession(stand(), "orphaned");
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
}
