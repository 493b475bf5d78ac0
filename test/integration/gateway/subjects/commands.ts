/** Commands: what goes in, what comes out, and what is refused. */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { before, describe, test } from "node:test";
import { GROUP } from "../../../../operator/src/gateway/discovery.ts";
import type { Gateway } from "../../../../operator/src/gateway/server.ts";
import { type Lab, sessionPath } from "../fixture.ts";
import type { Caller } from "../raw-request.ts";
import { details, post, type Stand } from "./stand.ts";

export function commands(stand: () => Stand): void {
  describe("commands", () => {
    let lab: Lab;
    let gateway: Gateway;
    let owner: Caller;
    before(() => {
      ({ lab, gateway, owner } = stand());
    });

    test("exec answers exit code and both streams, binary-safe, with environment and stdin from the body", async () => {
      await lab.sandbox("exec");
      const stdin = randomBytes(4_096);
      const answer = await post(owner, "exec", "exec", {
        command: ["cat"],
        env: { A: "b" },
        workingDir: "/tmp",
        user: "1000:1000",
        stdin: stdin.toString("base64"),
        timeoutSeconds: 5,
      });
      assert.equal(answer.status, 200, answer.bytes.toString());
      assert.equal(answer.json["exitCode"], 0);
      assert.equal(answer.json["timedOut"], false);
      assert.deepEqual(Buffer.from(String(answer.json["stdout"]), "base64"), stdin);
      const seen = lab.driver.execs.at(-1);
      assert.equal(seen?.id, await lab.computeOf("exec"));
      assert.deepEqual(seen?.request.env, { A: "b" });
      assert.equal(seen?.request.workingDir, "/tmp");
      assert.equal(seen?.request.user, "1000:1000");
      assert.equal(seen?.request.timeoutMs, 5_000);
    });

    const badBodies: [name: string, body: unknown, says: RegExp][] = [
      ["no command", {}, /command/],
      ["an unknown field", { command: ["true"], detach: true }, /detach/],
      ["stdin that is not base64", { command: ["cat"], stdin: "*" }, /stdin/],
      ["a NUL in the command", { command: ["a\0b"] }, /NUL/],
      ["no JSON", Buffer.from("{"), /JSON/],
    ];
    for (const [name, body, says] of badBodies) {
      test(`an exec body with ${name} is a 400 that names it`, async () => {
        const answer = await post(owner, "any", "exec", body);
        assert.equal(answer.status, 400);
        assert.match(String(answer.json["message"]), says);
      });
    }

    test("a command longer than kube-apiserver's cut is refused through it and allowed directly", async () => {
      await lab.sandbox("long");
      const refused = await post(owner, "long", "exec", { command: ["echo", "x"], timeoutSeconds: 51 });
      assert.equal(refused.status, 400);
      assert.match(String(refused.json["message"]), /at most 50/);
      const account = await lab.serviceAccount("long");
      await lab.grant(account.user, { apiGroups: [GROUP], resources: ["sandboxes/exec"], verbs: ["create"] });
      const direct = lab.direct(gateway, { token: account.token });
      assert.equal((await post(direct, "long", "exec", { command: ["echo", "x"], timeoutSeconds: 600 })).status, 200);
      const beyond = await post(direct, "long", "exec", { command: ["echo", "x"], timeoutSeconds: 90_000 });
      assert.equal(details(beyond)["code"], "BeyondLifetime");
    });

    test("errors of the runtime become Status objects an agent can act on", async () => {
      await lab.sandbox("errors");
      const missing = await post(owner, "errors", "exec", { command: ["nonsense"] });
      assert.equal(missing.status, 422);
      assert.equal(missing.json["kind"], "Status");
      assert.equal(details(missing)["code"], "CommandNotStarted");
      assert.equal(details(missing)["name"], "errors");
      assert.ok(typeof details(missing)["remediation"] === "string" && typeof details(missing)["cause"] === "string");
      const flood = await post(owner, "errors", "exec", { command: ["flood"] });
      assert.equal(flood.status, 413);
      assert.match(String(details(flood)["remediation"]), /files\?path=/);
      assert.equal((await owner.send({ target: sessionPath("errors", "files?path=/none") })).status, 404);
      assert.equal((await post(owner, "absent", "exec", { command: ["true"] })).status, 404);
    });

    test("a command and environment above 4 MiB are a 413, and neither session nor host hears of them", async () => {
      await lab.sandbox("wordy");
      const execs = lab.driver.execs.length;
      const before = (await lab.read("wordy")).metadata.resourceVersion;
      const env = Object.fromEntries(Array.from({ length: 40 }, (_, at) => [`A${at}`, "x".repeat(120_000)]));
      const answer = await post(owner, "wordy", "exec", { command: ["echo"], env });
      assert.equal(answer.status, 413);
      assert.equal(details(answer)["code"], "CommandTooLarge");
      assert.equal((await lab.read("wordy")).metadata.resourceVersion, before);
      assert.equal(lab.driver.execs.length, execs);
    });
  });
}
