import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { callEngine, expectSuccess } from "../../../hack/parts/engine-api.ts";
import { Bench, refusal } from "../../conformance/driver/bench.ts";
import { type DockerUnderTest, makeDocker } from "../../conformance/driver/docker.ts";

describe("isolation of a session on a Docker host", () => {
  let under: DockerUnderTest;
  before(async () => {
    under = await makeDocker();
  });
  after(async () => {
    await under[Symbol.asyncDispose]();
  });

  const inspect = async (id: string) => {
    const path = `/containers/${id}/json`;
    const answer = await callEngine(under.dockerHost, { path, signal: AbortSignal.timeout(15_000) });
    return JSON.parse(expectSuccess(path, answer));
  };

  test("a command has no more than the engine's default capabilities and gains none", async () => {
    await using bench = new Bench(under);
    const id = await bench.create();
    const status = await bench.shell(id, "cat /proc/self/status");
    // CHOWN … AUDIT_WRITE, SETFCAP: no SYS_ADMIN, NET_ADMIN, SYS_PTRACE, SYS_RESOURCE, DAC_READ_SEARCH.
    assert.match(status, /CapBnd:\s*00000000a80425fb/);
    assert.match(status, /CapEff:\s*00000000a80425fb/);
    assert.match(status, /NoNewPrivs:\s*1/);
  });

  test("limits, restart policy, mounts and logging are as the design says", async () => {
    await using bench = new Bench(under);
    const id = await bench.create();
    const { HostConfig, Mounts, Config } = await inspect(id);
    assert.equal(HostConfig.PidsLimit, 128);
    assert.equal(HostConfig.Memory, 256 << 20);
    assert.equal(HostConfig.MemorySwap, 256 << 20);
    assert.equal(HostConfig.NanoCpus, 1e9);
    assert.equal(HostConfig.RestartPolicy.Name, "no");
    assert.equal(HostConfig.LogConfig.Type, "none");
    assert.equal(HostConfig.Privileged, false);
    assert.equal(Config.Hostname, "session");
    assert.deepEqual(
      Mounts.map((mount: { Type: string; Destination: string; RW: boolean }) => [
        mount.Type,
        mount.Destination,
        mount.RW,
      ]),
      [["volume", "/.agentworlds", false]],
    );
  });

  test("the helper cannot be changed from inside", async () => {
    await using bench = new Bench(under);
    const id = await bench.create();
    const script = "echo x >/.agentworlds/agentworlds-helper || rm /.agentworlds/agentworlds-helper || echo refused";
    assert.equal(await bench.shell(id, `(${script}) 2>/dev/null`), "refused\n");
  });

  test("a fork storm is stopped by the pids limit and leaves the session usable", async () => {
    await using bench = new Bench(under);
    const id = await bench.create();
    const storm = "i=0; while [ $i -lt 300 ]; do sleep 100 & i=$((i+1)); done";
    const record = await bench.driver.exec(id, { command: ["sh", "-c", storm], timeoutMs: 60_000 }, bench.signal);
    assert.notEqual(record.exitCode, 0);
    assert.equal(await bench.state(id), "Running");
  });

  test("memory above the limit kills the command, not the session", async () => {
    await using bench = new Bench(under);
    const id = await bench.create();
    const command = ["sh", "-c", "head -c 600m /dev/zero | tail -c 550m | wc -c"];
    const record = await bench.driver.exec(id, { command, timeoutMs: 120_000 }, bench.signal);
    assert.notEqual(Buffer.from(record.stdout).toString().trim(), String(550 << 20));
    assert.equal(await bench.shell(id, "echo alive"), "alive\n");
  });

  test("two sessions cannot reach each other", async () => {
    await using bench = new Bench(under);
    const [server, client] = await Promise.all([
      bench.create({ network: "Isolated" }),
      bench.create({ network: "Isolated" }),
    ]);
    const address = (await inspect(server)).NetworkSettings.Networks["agentworlds-isolated"].IPAddress;
    await bench.shell(server, "mkdir -p /www; echo here >/www/index.html; httpd -p 8080 -h /www");
    const ask = ["sh", "-c", `printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 3 ${address} 8080`];
    const fromItself = await bench.driver.exec(server, { command: ask }, bench.signal);
    assert.match(Buffer.from(fromItself.stdout).toString(), /here/);
    const fromAnother = await bench.driver.exec(client, { command: ask }, bench.signal);
    assert.equal(fromAnother.stdout.length, 0);
    assert.notEqual(fromAnother.exitCode, 0);
  });

  test("network None is loopback only", async () => {
    await using bench = new Bench(under);
    const id = await bench.create({ network: "None" });
    assert.equal(await bench.shell(id, "ls /sys/class/net"), "lo\n");
  });

  test("an unknown OCI runtime is refused by its name, and nothing runs", async () => {
    await using bench = new Bench(under);
    const spec = bench.spec();
    const wish = { ...spec, isolation: { ...spec.isolation, ociRuntime: "no-such-runtime" } };
    await assert.rejects(bench.driver.create(wish, bench.signal), refusal("HostRefused", /no-such-runtime/));
    assert.notEqual(await bench.state(`aw-${spec.owner.sandboxUid}-1`), "Running");
  });

  test("a command's environment is in no process list of the host", { skip: process.getuid?.() !== 0 }, async () => {
    await using bench = new Bench(under);
    const id = await bench.create();
    const secret = `s3cret-${id}`;
    const script = "echo >/tmp/begun; while [ ! -e /tmp/stop ]; do sleep 0.01; done";
    const running = bench.driver.exec(id, { command: ["sh", "-c", script], env: { TOKEN: secret } }, bench.signal);
    await bench.shell(id, "while [ ! -e /tmp/begun ]; do sleep 0.01; done");
    const argvs = await Promise.all(
      (await readdir("/proc"))
        .filter((name) => /^\d+$/.test(name))
        // Processes end while we look.
        .map((pid) => readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")),
    );
    await bench.write(id, "/tmp/stop", "");
    assert.equal((await running).exitCode, 0);
    assert.deepEqual(
      argvs.filter((argv) => argv.includes(secret)),
      [],
    );
    assert.ok(
      argvs.some((argv) => argv.includes("/tmp/begun")),
      "the command itself was not seen: the look proves nothing",
    );
  });
});
