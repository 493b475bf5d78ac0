import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, test } from "node:test";
import { refusal, textOf } from "./bench.ts";
import type { OpenBench } from "./contract.ts";

const sh = (script: string) => ["sh", "-c", script];
const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

/** Supervised commands. */
export function execContract(open: OpenBench): void {
  describe("exec", () => {
    const endings: [script: string, exitCode: number, signal: number][] = [
      ["exit 0", 0, 0],
      ["exit 7", 7, 0],
      ["exit 255", 255, 0],
      ["kill -TERM $$", 143, 15],
      ["kill -KILL $$", 137, 9],
    ];
    for (const [script, exitCode, signal] of endings)
      test(`"${script}" is recorded as exit code ${exitCode}, signal ${signal}`, async () => {
        await using bench = open();
        const record = await bench.driver.exec(await bench.create(), { command: sh(script) }, bench.signal);
        assert.deepEqual([record.exitCode, record.signal, record.timedOut], [exitCode, signal, false]);
      });

    test("stdin arrives whole and ends", async () => {
      await using bench = open();
      const id = await bench.create();
      const stdin = Buffer.from(Array.from({ length: 1_000_000 }, (_, index) => index % 251));
      const record = await bench.driver.exec(id, { command: ["sha256sum"], stdin }, bench.signal);
      assert.equal(textOf(record.stdout).split(" ")[0], sha256(stdin));
    });

    test("5 MB on each stream at the same time arrive byte for byte", async () => {
      await using bench = open();
      const id = await bench.create();
      await bench.shell(id, "head -c 5000000 /dev/urandom >/tmp/out; head -c 5000000 /dev/urandom >/tmp/err");
      const sums = await bench.shell(id, "sha256sum /tmp/out /tmp/err | cut -d' ' -f1");
      const command = sh("cat /tmp/out & cat /tmp/err >&2; wait");
      const record = await bench.driver.exec(id, { command }, bench.signal);
      assert.deepEqual([sha256(record.stdout), sha256(record.stderr)], sums.trim().split("\n"));
    });

    test("environment, working directory and user are the request's", async () => {
      await using bench = open();
      const id = await bench.create();
      const record = await bench.driver.exec(
        id,
        {
          command: sh('printf "%s|" "$A" "$PWD" "$(id -u):$(id -g)"'),
          env: { A: "x y\n'" },
          workingDir: "/tmp",
          user: "65534:7",
        },
        bench.signal,
      );
      assert.equal(textOf(record.stdout), "x y\n'|/tmp|65534:7|");
    });

    test("a timeout kills the whole process group and keeps what was written", async () => {
      await using bench = open();
      const id = await bench.create();
      const command = sh("echo begun; sleep 4242 & sleep 4242 & wait");
      const record = await bench.driver.exec(id, { command, timeoutMs: 500 }, bench.signal);
      assert.deepEqual([record.exitCode, record.timedOut, textOf(record.stdout)], [124, true, "begun\n"]);
      assert.equal(await bench.shell(id, "ps -o args | grep -c '[s]leep 4242' || true"), "0\n");
    });

    test("a background process does not hold the record back and outlives the command", async () => {
      await using bench = open();
      const id = await bench.create();
      const command = sh("(while :; do echo tick; sleep 0.05; done) & echo $! >/tmp/pid; echo started");
      const record = await bench.driver.exec(id, { command, timeoutMs: 60_000 }, bench.signal);
      assert.equal(record.exitCode, 0);
      assert.match(textOf(record.stdout), /started/);
      // Long enough for a write into a pipe that nobody reads any more.
      assert.equal(await bench.shell(id, "sleep 0.5; kill -0 $(cat /tmp/pid) && echo alive"), "alive\n");
    });

    test("more output than allowed ends the command and is an error that names the limit", async () => {
      await using bench = open();
      const id = await bench.create();
      await assert.rejects(
        bench.driver.exec(id, { command: sh("yes 4343"), maxOutputBytes: 100_000 }, bench.signal),
        refusal("OutputTooLarge", /100000/),
      );
      assert.equal(await bench.shell(id, "ps -o args | grep -c '[y]es 4343' || true"), "0\n");
    });

    test("output of exactly the allowed size is complete", async () => {
      await using bench = open();
      const id = await bench.create();
      const command = sh("head -c 100000 /dev/zero");
      const record = await bench.driver.exec(id, { command, maxOutputBytes: 100_000 }, bench.signal);
      assert.equal(record.stdout.length, 100_000);
    });

    test("a command that cannot start is an error and no exit code", async () => {
      await using bench = open();
      const id = await bench.create();
      const requests = [
        { command: ["no-such-program"] },
        { command: ["true"], workingDir: "/no/such" },
        { command: ["true"], user: "nobody-here" },
        { command: [] },
      ];
      for (const request of requests)
        await assert.rejects(bench.driver.exec(id, request, bench.signal), refusal("CommandNotStarted"));
    });

    test("a command that is too large to be passed is refused by name, and nothing is started", async () => {
      await using bench = open();
      const id = await bench.create();
      const command = ["touch", "/tmp/begun", ...Array.from({ length: 40 }, () => "x".repeat(120_000))];
      await assert.rejects(
        bench.driver.exec(id, { command, timeoutMs: 600_000 }, bench.signal),
        refusal("CommandTooLarge", /at most 4194304/),
      );
      await assert.rejects(bench.read(id, "/tmp/begun"), refusal("FileNotFound"));
    });

    test("a command in a frozen container is refused at once", async () => {
      await using bench = open();
      const id = await bench.create();
      await bench.driver.freeze(id, bench.signal);
      await assert.rejects(
        bench.driver.exec(id, { command: ["true"] }, bench.signal),
        refusal("ComputeNotRunning", /frozen/),
      );
    });

    test("a container that dies under a command is said to have ended; no exit code is invented", async () => {
      await using bench = open();
      const id = await bench.create();
      const running = bench.driver.exec(id, { command: sh("echo >/tmp/begun; sleep 1000") }, bench.signal);
      await bench.shell(id, "while [ ! -e /tmp/begun ]; do sleep 0.01; done");
      const [outcome] = await Promise.allSettled([running, bench.kill(id)]);
      assert.ok(
        outcome.status === "rejected" && refusal("ComputeNotRunning", /ended/)(outcome.reason),
        String(outcome),
      );
    });

    test("an abort of the caller ends the command in the container", async () => {
      await using bench = open();
      const id = await bench.create();
      const abort = new AbortController();
      const running = bench.driver.exec(id, { command: sh("echo >/tmp/begun; sleep 4444") }, abort.signal);
      await bench.shell(id, "while [ ! -e /tmp/begun ]; do sleep 0.01; done");
      const reason = new Error("the client left");
      abort.abort(reason);
      await assert.rejects(running, (error) => error === reason);
      await bench.shell(id, "while ps -o args | grep -q '[s]leep 4444'; do sleep 0.01; done");
    });

    test("nothing inside ends PID 1, and orphans leave no zombie", async () => {
      await using bench = open();
      const id = await bench.create();
      await bench.shell(id, "for s in 1 2 3 9 11 15 19 10 12; do kill -$s 1; done");
      await bench.shell(id, "for i in 1 2 3 4 5; do (sh -c 'sleep 0.01 & sleep 0.01 &' &); done");
      // Kills everything it may, its own supervisor included, so there is no record.
      await assert.rejects(bench.shell(id, "kill -9 -1"), refusal("ExecConnectionLost"));
      assert.equal(await bench.state(id), "Running");
      await bench.shell(id, "while ps -o stat | grep -q '^Z'; do sleep 0.01; done");
    });
  });
}
