import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { after, before, describe, test } from "node:test";
import { pack } from "tar-stream";
import { callEngine, expectSuccess } from "../../../hack/parts/engine-api.ts";
import type { RuntimeDriver } from "../../../operator/src/runtime/contract.ts";
import { createDockerDriver } from "../../../operator/src/runtime/docker/driver.ts";
import { helperVolumeName } from "../../../operator/src/runtime/docker/helper-volume.ts";
import { type HelperBinary, loadHelper } from "../../../operator/src/runtime/helper.ts";
import { Bench } from "../../conformance/driver/bench.ts";
import { type DockerUnderTest, makeDocker } from "../../conformance/driver/docker.ts";

const signal = AbortSignal.timeout(5 * 60_000);

/** The helper with bytes behind its end: it runs as before and is another version, so this test disturbs nobody. */
async function ownVersion(): Promise<HelperBinary> {
  const platform = process.arch === "arm64" ? "linux/arm64" : "linux/amd64";
  const bytes = Buffer.concat([(await loadHelper({ platform }, signal)).bytes, randomBytes(16)]);
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  return { bytes, sha256, version: sha256.slice(0, 16) };
}

describe("the helper's volume on a host", () => {
  let under: DockerUnderTest;
  let helper: HelperBinary;
  let name: string;
  before(async () => {
    under = await makeDocker();
    helper = await ownVersion();
    name = helperVolumeName(helper);
  });
  after(async () => {
    try {
      await engine("DELETE", `/containers/${name}?force=1`);
      await engine("DELETE", `/volumes/${name}`);
      await engine("DELETE", `/images/agentworlds/helper:${helper.version}`);
    } finally {
      await under[Symbol.asyncDispose]();
    }
  });

  const engine = async (method: string, path: string, body?: Buffer): Promise<string> => {
    const headers = { "content-type": "application/x-tar" };
    const content = body === undefined ? {} : { headers, body: Readable.from([body]) };
    return expectSuccess(path, await callEngine(under.dockerHost, { method, path, signal, ...content }));
  };

  /** A session made by a driver of a new process. */
  async function boot(): Promise<string> {
    const driver: RuntimeDriver = createDockerDriver({
      installation: under.installation,
      endpoint: under.dockerHost,
      helper: async () => helper,
    });
    await using stack = new AsyncDisposableStack();
    stack.adopt(driver, (one) => one.close());
    const bench = stack.use(
      new Bench({ ...under, driver, kill: under.kill, [Symbol.asyncDispose]: async () => undefined }),
    );
    const id = await bench.create();
    return await bench.shell(id, "sha256sum /.agentworlds/agentworlds-helper | cut -d' ' -f1");
  }

  test("it is made without pulling anything, and by several processes at once", async () => {
    const booted = await Promise.all([boot(), boot(), boot()]);
    assert.deepEqual(new Set(booted), new Set([`${helper.sha256}\n`]));
  });

  test("a damaged helper is noticed by the next process and put again", async () => {
    const damage = pack();
    damage.entry({ name: "agentworlds-helper", mode: 0o755 }, "#!/bin/sh\nexit 1\n");
    damage.finalize();
    await engine("PUT", `/containers/${name}/archive?path=/.agentworlds`, await buffer(damage));
    assert.equal(await boot(), `${helper.sha256}\n`);
  });

  test("a volume and carrier that somebody removed are made again", async () => {
    await engine("DELETE", `/containers/${name}?force=1`);
    await engine("DELETE", `/volumes/${name}`);
    assert.equal(await boot(), `${helper.sha256}\n`);
  });
});
