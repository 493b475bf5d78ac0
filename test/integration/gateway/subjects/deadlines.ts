/** Deadlines, touches, and sessions that do not run. */
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { EVENTS } from "../../../../operator/src/kube/resource-types.ts";
import type { KubeObject } from "../../../../operator/src/reconciler/list-watch.ts";
import { eventually } from "../../../kit/index.ts";
import { iso, LAB, type Lab, sessionPath } from "../fixture.ts";
import type { Caller } from "../raw-request.ts";
import { details, post, type Stand } from "./stand.ts";

const MINUTE = 60_000;

export function deadlines(stand: () => Stand): void {
  describe("deadlines and touches", () => {
    let lab: Lab;
    let owner: Caller;
    before(() => {
      ({ lab, owner } = stand());
    });

    test("a touch moves the deadline to now plus ttl and never shortens it", async () => {
      await lab.sandbox("touched", { spec: { ttlSeconds: 3_600 } });
      const began = Date.now();
      const answer = await post(owner, "touched", "touch");
      assert.equal(answer.status, 200, answer.bytes.toString());
      const expiresAt = Date.parse(String(answer.json["expiresAt"]));
      assert.ok(expiresAt >= began + 3_600_000 && expiresAt <= Date.now() + 3_600_000);
      const shorter = await post(owner, "touched", "touch", { ttlSeconds: 1 });
      assert.equal(shorter.json["expiresAt"], answer.json["expiresAt"]);
      assert.equal((await lab.read("touched")).status.expiresAt, answer.json["expiresAt"]);
    });

    test("a stated ttl beyond the lifetime is refused and says how much is left", async () => {
      await lab.sandbox("lifetime");
      const answer = await post(owner, "lifetime", "touch", { ttlSeconds: 86_400 });
      assert.equal(answer.status, 400);
      assert.equal(details(answer)["code"], "BeyondLifetime");
      const implicit = await lab.sandbox("clamped", { spec: { ttlSeconds: 86_400, maxLifetimeSeconds: 86_400 } });
      const clamped = await post(owner, "clamped", "touch");
      assert.equal(clamped.json["expiresAt"], implicit.status.lifetimeEndsAt);
    });

    test("a touch of a running session leaves an Event that names who touched, one for many touches", async () => {
      await lab.sandbox("traced");
      for (let touches = 0; touches < 5; touches++) assert.equal((await post(owner, "traced", "touch")).status, 200);
      const events = await eventually(
        async () => {
          const page = await lab.kube
            .resource<KubeObject>(EVENTS)
            .list({ namespace: LAB, fieldSelector: "reason=Touched", signal: lab.signal });
          const ours = page.items.filter(({ metadata }) => metadata.name.startsWith("traced."));
          return ours.length > 0 ? ours : undefined;
        },
        { what: "the Event" },
      );
      assert.equal(events.length, 1);
      assert.deepEqual(JSON.parse(events[0]?.metadata.annotations?.["agentworlds.dev/caused-by"] ?? ""), {
        user: "owner",
      });
    });

    test("three hundred quick touches all succeed and lose nothing another writer wrote", async () => {
      await lab.sandbox("busy", { spec: { ttlSeconds: 3_600 }, status: { expiresAt: iso(Date.now() + MINUTE) } });
      const touches = Array.from({ length: 300 }, () => post(owner, "busy", "touch"));
      const others = Array.from({ length: 20 }, (_, count) =>
        lab.sandboxes.patchStatus(
          { namespace: LAB, name: "busy" },
          { status: { boot: count + 2 } },
          { signal: lab.signal },
        ),
      );
      const answers = await Promise.all(touches);
      await Promise.all(others);
      assert.deepEqual(new Set(answers.map((answer) => answer.status)), new Set([200]));
      const { status } = await lab.read("busy");
      const latest = Math.max(...answers.map((answer) => Date.parse(String(answer.json["expiresAt"]))));
      assert.equal(Date.parse(status.expiresAt ?? ""), latest);
      assert.ok(status.compute !== undefined && (status.boot ?? 0) >= 2);
    });

    test("work extends the deadline, reading does not, and a burst of work costs one write", async () => {
      const near = iso(Date.now() + MINUTE);
      await lab.sandbox("work", { status: { expiresAt: near, lastActivityAt: iso(Date.now()) } });
      lab.driver.put(await lab.computeOf("work"), "/f", Buffer.from("x"));
      await owner.send({ target: sessionPath("work", "files?path=/f") });
      await owner.send({ target: sessionPath("work") });
      assert.equal((await lab.read("work")).status.expiresAt, near);
      const answer = await post(owner, "work", "exec", { command: ["echo"] });
      const moved = await lab.read("work");
      assert.ok(Date.parse(moved.status.expiresAt ?? "") > Date.parse(near) + MINUTE);
      assert.equal(answer.json["expiresAt"], moved.status.expiresAt);
      await lab.sandboxes.patchStatus(
        { namespace: LAB, name: "work" },
        { status: { expiresAt: iso(Date.now() + 899_900), lastActivityAt: iso(Date.now()) } },
        { signal: lab.signal },
      );
      const before = (await lab.read("work")).metadata.resourceVersion;
      await post(owner, "work", "exec", { command: ["echo"] });
      assert.equal((await lab.read("work")).metadata.resourceVersion, before);
    });

    test("a session that is hibernated, hibernating or closed refuses work and says what to do", async () => {
      await lab.sandbox("asleep", { status: clear() });
      const operation = {
        id: "op",
        verb: "Hibernate" as const,
        reason: "DeadlineExceeded",
        stage: "Frozen" as const,
        since: iso(Date.now()),
        attempts: 1,
      };
      await lab.sandbox("dozing", { status: { operation } });
      await lab.sandbox("ended", { status: { ...clear(), closed: { version: 3, at: iso(Date.now()) } } });
      const cases: [name: string, status: number, code: string, remediation: RegExp][] = [
        ["asleep", 409, "Hibernated", /touch it/],
        ["dozing", 409, "Hibernating", /touch it/],
        ["ended", 410, "Closed", /create another/],
      ];
      for (const [name, status, code, remediation] of cases) {
        for (const answer of [
          await post(owner, name, "exec", { command: ["echo"] }),
          await owner.send({ target: sessionPath(name, "files?path=/f") }),
          await post(owner, name, "snapshot"),
        ]) {
          assert.equal(answer.status, status, name);
          assert.equal(details(answer)["code"], code);
          assert.match(String(details(answer)["remediation"]), remediation);
        }
      }
      assert.equal((await post(owner, "ended", "touch")).status, 410);
    });

    test("a touch after the intent to hibernate is recorded as a wake, once, with who asked", async () => {
      for (const name of ["asleep", "dozing"]) {
        const first = await post(owner, name, "touch");
        assert.equal(first.status, 202);
        assert.equal(first.json["waking"], true);
        const again = await Promise.all(Array.from({ length: 30 }, () => post(owner, name, "touch")));
        assert.deepEqual(new Set(again.map((answer) => answer.json["id"])), new Set([first.json["id"]]));
        const requests = (await lab.read(name)).status.requests ?? [];
        assert.deepEqual(
          requests.map(({ verb, user }) => ({ verb, user })),
          [{ verb: "Touch", user: "owner" }],
        );
      }
    });

    test("a touch under spec.mode Hibernated is refused: the owner's word outranks activity", async () => {
      await lab.sandbox("parked", { spec: { mode: "Hibernated" }, status: clear() });
      const answer = await post(owner, "parked", "touch");
      assert.equal(answer.status, 409);
      assert.match(String(details(answer)["remediation"]), /spec\.mode/);
      assert.equal((await lab.read("parked")).status.requests, undefined);
    });

    test("a session does not expire under a command that runs longer than its ttl", async () => {
      const deadline = Date.now() + 3_000;
      await lab.sandbox("vigil", { spec: { ttlSeconds: 3 }, status: { expiresAt: iso(deadline) } });
      const command = post(owner, "vigil", "exec", { command: ["wait", "4500"] });
      let ended = false;
      void command.finally(() => {
        ended = true;
      });
      const seen = new Set<string>();
      await eventually(async () => {
        const { expiresAt = "" } = (await lab.read("vigil")).status;
        assert.ok(Date.parse(expiresAt) > Date.now(), "expired under the command");
        seen.add(expiresAt);
        return ended;
      });
      assert.equal((await command).status, 200);
      assert.ok(seen.size >= 4, `moved ${seen.size} times`);
    });
  });
}

/** Nothing runs: what hibernation leaves of the running status. */
function clear(): Record<string, null> {
  return { compute: null, expiresAt: null, lifetimeEndsAt: null };
}
