import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { describe, test } from "node:test";
import { bytesOf, refusal } from "./bench.ts";
import type { ContractOptions, OpenBench } from "./contract.ts";

/** Reading and writing single files. */
export function fileContract(open: OpenBench, options: ContractOptions): void {
  describe("files", () => {
    test("a file reads back byte for byte under any name", async () => {
      await using bench = open();
      const id = await bench.create();
      const names = ["plain", "with space", "new\nline", "-rf", "ünïcode", "%2e%2e", '"quoted"'].map(bytesOf);
      names.push(Buffer.from([0xff, 0xfe, 0x0a]));
      for (const [index, name] of names.entries()) {
        const path = Buffer.concat([Buffer.from("/work/deep/"), name]);
        const content = Buffer.concat([randomBytes(1000 + index), Buffer.from([0, 13, 10, 255])]);
        await bench.write(id, path, content);
        assert.deepEqual(await bench.read(id, path), content, Buffer.from(name).toString("latin1"));
      }
    });

    test("an empty file and one of 8 MiB survive the way", async () => {
      await using bench = open();
      const id = await bench.create();
      for (const content of [Buffer.alloc(0), randomBytes(8 << 20)]) {
        await bench.write(id, "/work/file", content);
        assert.ok((await bench.read(id, "/work/file")).equals(content));
      }
    });

    test("an absent file is FileNotFound", async () => {
      await using bench = open();
      const id = await bench.create();
      await assert.rejects(bench.read(id, "/no/such"), refusal("FileNotFound", /no\/such/));
    });

    test("a relative path, and one with a NUL byte, are refused", async () => {
      await using bench = open();
      const id = await bench.create();
      for (const path of ["relative", "/a\0b"])
        await assert.rejects(bench.write(id, path, "x"), refusal("FileRefused"), JSON.stringify(path));
    });

    test("content that fails in the middle leaves the old bytes and throws the content's own error", async () => {
      await using bench = open();
      const id = await bench.create();
      await bench.write(id, "/work/file", "old");
      const broken = new Error("the upload broke off");
      const content = (async function* () {
        yield Buffer.from("ne");
        throw broken;
      })();
      await assert.rejects(
        bench.driver.writeFile(id, { path: bytesOf("/work/file"), content }, bench.signal),
        (error) => error === broken,
      );
      assert.equal((await bench.read(id, "/work/file")).toString(), "old");
    });

    test("a frozen or ended container is said to be not running", async () => {
      await using bench = open();
      const id = await bench.create();
      await bench.driver.freeze(id, bench.signal);
      await assert.rejects(bench.write(id, "/work/file", "x"), refusal("ComputeNotRunning", /frozen/));
      await bench.driver.stop(id, bench.signal);
      await assert.rejects(bench.read(id, "/work/file"), refusal("ComputeNotRunning", /ended/));
    });

    if (options.runsCommands) processFileContract(open);
  });
}

function processFileContract(open: OpenBench): void {
  test("a reader sees the old bytes or the new ones, never a mixture, never nothing", async () => {
    await using bench = open();
    const id = await bench.create();
    const versions = ["a", "b"].map((letter) => letter.repeat(200_000));
    await bench.write(id, "/work/file", versions[0] ?? "");
    const watch = bench.driver.exec(
      id,
      {
        command: ["sh", "-c", "while [ ! -e /work/stop ]; do md5sum </work/file; done"],
        timeoutMs: 60_000,
      },
      bench.signal,
    );
    for (let round = 0; round < 20; round++) await bench.write(id, "/work/file", versions[round % 2] ?? "");
    await bench.write(id, "/work/stop", "");
    const record = await watch;
    const seen = new Set(Buffer.from(record.stdout).toString().trim().split("\n"));
    const legal = versions.map((version) => `${createHash("md5").update(version).digest("hex")}  -`);
    assert.equal(record.exitCode, 0, Buffer.from(record.stderr).toString());
    assert.deepEqual(seen.difference(new Set(legal)), new Set());
    assert.ok(seen.size > 0);
  });

  test("a replaced file keeps owner and mode; a new one is 0644 and the session's user's", async () => {
    await using bench = open();
    const id = await bench.create();
    await bench.shell(id, "mkdir /work && echo old >/work/tool && chown 4321:1234 /work/tool && chmod 4750 /work/tool");
    await bench.write(id, "/work/tool", "new");
    await bench.write(id, "/work/fresh", "new");
    await bench.write(id, "/work/script", "new", 0o755);
    const facts = await bench.shell(id, "stat -c '%a %u:%g' /work/tool /work/fresh /work/script");
    assert.deepEqual(facts.trim().split("\n"), ["4750 4321:1234", "644 0:0", "755 0:0"]);
    assert.equal((await bench.shell(id, "ls -a /work")).includes(".agentworlds"), false);
  });

  test("what is not a file, and what is not the session's, is refused by code", async () => {
    await using bench = open();
    const id = await bench.create();
    await bench.shell(id, "mkdir /work && mkfifo /work/fifo && ln -s /proc/1/environ /work/sneaky");
    await assert.rejects(bench.read(id, "/work"), refusal("NotAFile"));
    await assert.rejects(bench.read(id, "/work/fifo"), refusal("NotAFile"));
    await assert.rejects(bench.write(id, "/work", "x"), refusal("NotAFile"));
    await assert.rejects(bench.read(id, "/work/sneaky"), refusal("FileRefused"));
    for (const path of ["/.agentworlds/agentworlds-helper", "/proc/sys/kernel/hostname", "/dev/.agentworlds/x"])
      await assert.rejects(bench.write(id, path, "x"), refusal("FileRefused"), path);
  });
}
