/** Verbs that wait for the leading controller. */
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { eventually } from "../../../kit/index.ts";
import { iso, LAB, type Lab } from "../fixture.ts";
import type { Caller } from "../raw-request.ts";
import { asked, DIGEST, details, post, type Stand, settle } from "./stand.ts";

export function slowVerbs(stand: () => Stand): void {
  describe("slow verbs", () => {
    let lab: Lab;
    let owner: Caller;
    before(() => {
      ({ lab, owner } = stand());
    });

    test("a snapshot waits for the controller's word, and the same id is the same snapshot", async () => {
      await lab.sandbox("snap");
      const pending = post(owner, "snap", "snapshot", { id: "mine", description: "before the upgrade" });
      await asked(lab, "snap", "mine");
      await settle(lab, {
        name: "snap",
        id: "mine",
        result: { outcome: "Succeeded", version: 4, digest: DIGEST, at: iso(Date.now()) },
      });
      const answer = await pending;
      assert.equal(answer.status, 200, answer.bytes.toString());
      assert.equal(answer.json["done"], true);
      assert.equal(answer.json["version"], 4);
      assert.equal(answer.json["digest"], DIGEST);
      const again = await post(owner, "snap", "snapshot", { id: "mine", description: "before the upgrade" });
      assert.deepEqual(again.json, answer.json);
      const requests = (await lab.read("snap")).status.requests ?? [];
      assert.equal(requests.length, 1);
      assert.equal(requests[0]?.user, "owner");
      assert.deepEqual(requests[0]?.parameters, { description: "before the upgrade" });
      for (const [verb, body] of [
        ["close", { id: "mine", description: "before the upgrade" }],
        ["snapshot", { id: "mine", description: "after the upgrade" }],
        ["snapshot", { id: "mine" }],
      ] as const) {
        const reused = await post(owner, "snap", verb, body);
        assert.deepEqual([reused.status, details(reused)["code"]], [409, "IdReused"]);
      }
    });

    test("a slow verb answers 202 before kube-apiserver would cut it, and the same id goes on waiting", async () => {
      await lab.sandbox("slow");
      const first = await post(owner, "slow", "snapshot", { id: "slow-1" });
      assert.equal(first.status, 202);
      assert.deepEqual(first.json, { id: "slow-1", done: false });
      const waiting = post(owner, "slow", "snapshot", { id: "slow-1" });
      await settle(lab, {
        name: "slow",
        id: "slow-1",
        result: { outcome: "Succeeded", version: 1, digest: DIGEST, at: iso(Date.now()) },
      });
      assert.equal((await waiting).json["done"], true);
    });

    test("what the controller refuses is a Status with its code and words", async () => {
      await lab.sandbox("refused");
      const pending = post(owner, "refused", "snapshot", { id: "no" });
      await asked(lab, "refused", "no");
      const result = {
        outcome: "Refused",
        code: "NothingToSave",
        message: "a throwaway session",
        at: iso(Date.now()),
      } as const;
      await settle(lab, { name: "refused", id: "no", result });
      const answer = await pending;
      assert.equal(answer.status, 409);
      assert.equal(details(answer)["code"], "NothingToSave");
      assert.equal(details(answer)["cause"], "a throwaway session");
    });

    test("a close carries its policy, ends with its version, and can be asked for again afterwards", async () => {
      await lab.sandbox("closing");
      const pending = post(owner, "closing", "close", { policy: "Discard" });
      await eventually(async () => (await lab.read("closing")).status.requests?.[0]?.parameters?.discard === "Discard");
      const closed = { version: 7, digest: DIGEST, at: iso(Date.now()) };
      await lab.sandboxes.patchStatus(
        { namespace: LAB, name: "closing" },
        { status: { closed } },
        { signal: lab.signal },
      );
      for (const answer of [await pending, await post(owner, "closing", "close")]) {
        assert.equal(answer.status, 200);
        assert.equal(answer.json["version"], 7);
      }
    });

    test("a Sandbox replaced under its name while somebody waits is a stranger", async () => {
      await lab.sandbox("twin");
      const pending = post(owner, "twin", "snapshot", { id: "first-twin" });
      await asked(lab, "twin", "first-twin");
      await lab.sandboxes.delete({ namespace: LAB, name: "twin" }, { signal: lab.signal });
      await lab.sandbox("twin");
      assert.ok([404, 409].includes((await pending).status));
      assert.equal((await lab.read("twin")).status.requests, undefined);
    });
  });
}
