/** Work in a session: commands, files, touches, snapshots, and its end. */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { before, describe, test } from "node:test";
import { GROUP } from "../../../../operator/src/gateway/discovery.ts";
import type { Gateway } from "../../../../operator/src/gateway/server.ts";
import {
  AgentWorlds,
  ClosedError,
  ConflictError,
  NotFoundError,
  NotReadyError,
  RequestError,
} from "../../../../sdk/src/index.ts";
import { eventually } from "../../../kit/index.ts";
import { LAB, type Lab } from "../../gateway/fixture.ts";
import { condition, digest, type PlayedController } from "../played-controller.ts";
import { posts, readySession, refused, type Stand } from "./stand.ts";

const MINUTE = 60_000;

export function sessions(stand: () => Stand): void {
  describe("sessions", () => {
    let lab: Lab;
    let gateway: Gateway;
    let controller: PlayedController;
    let worlds: AgentWorlds;
    before(() => {
      ({ lab, gateway, controller, worlds } = stand());
    });

    test("exec returns exit code and both streams, byte by byte, and extends the session", async () => {
      const session = await readySession(stand(), "exec");
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
      const session = await readySession(stand(), "shell");
      await assert.rejects(session.exec("echo $HOME | wc -c"), refused("CommandNotStarted", RequestError));
      assert.deepEqual(lab.driver.execs.at(-1)?.request.command, ["/bin/sh", "-c", "echo $HOME | wc -c"]);
    });

    test("a command longer than kube-apiserver's cut is refused with what to do, and runs by the gateway's own endpoint", async () => {
      await readySession(stand(), "long");
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
      const session = await readySession(stand(), "abort-exec");
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
      const session = await readySession(stand(), "flood");
      await assert.rejects(session.exec(["flood"]), refused("OutputTooLarge", RequestError));
    });

    test("files go in and out byte by byte, whatever their names", async () => {
      const session = await readySession(stand(), "files");
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
      const session = await readySession(stand(), "touched");
      const { expiresAt, lifetimeEndsAt } = await session.touch({ ttlSeconds: 3_600 });
      assert.ok(expiresAt && expiresAt.getTime() > Date.now() + 50 * MINUTE);
      assert.ok(lifetimeEndsAt && lifetimeEndsAt > expiresAt);
      assert.deepEqual(session.expiresAt, expiresAt);
      await assert.rejects(session.touch({ ttlSeconds: 86_400 }), refused("BeyondLifetime", RequestError));
    });

    test("work in a session that sleeps is refused with what to do; a touch wakes it and returns when it is Ready", async () => {
      const session = await readySession(stand(), "woken");
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
      const session = await readySession(stand(), "snapped");
      const snapping = session.snapshot({ description: "tools installed" });
      const asked = await controller.asked("snapped", "Snapshot");
      // The first poll has ended in 202, and another one came.
      await eventually(async () => (await posts(lab, "snapped", "snapshot")) >= 2, { what: "a second poll" });
      await controller.answers("snapped", "Snapshot", { outcome: "Succeeded", version: 4, digest: digest("a") });
      assert.deepEqual(await snapping, { version: 4, digest: digest("a") });
      const { requests } = (await lab.read("snapped")).status;
      assert.deepEqual(
        requests?.map(({ id, parameters }) => [id, parameters]),
        [[asked.id, { description: "tools installed" }]],
      );
    });

    test("a snapshot that failed is told with the controller's reason, and not asked for again", async () => {
      const session = await readySession(stand(), "snap-fails");
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
      const session = await readySession(stand(), "closes");
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
      const session = await readySession(stand(), "discards");
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
        await using session = await readySession(stand(), "scoped");
        await session.exec(["echo", "x"]);
      }
      await playing;
      assert.equal((await lab.read("scoped")).status.closed?.version, 6);
      {
        await using session = await readySession(stand(), "scoped-gone");
        await lab.sandboxes.delete({ namespace: LAB, name: session.name }, { signal: lab.signal });
      }
    });
  });
}
