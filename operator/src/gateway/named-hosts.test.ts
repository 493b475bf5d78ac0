import assert from "node:assert/strict";
import { test } from "node:test";
import { RuntimeError } from "../runtime/errors.ts";
import type { SessionDriver } from "./call.ts";
import { asFailure } from "./failure.ts";
import { namedHosts } from "./named-hosts.ts";

const { signal } = new AbortController();
const unreachable = new RuntimeError(
  "HostUnreachable",
  "POST /containers/aw-1/exec: connect ECONNREFUSED 10.1.2.3:2376",
);

const failing = (error: Error): SessionDriver => ({
  ownerOf: () => Promise.reject(error),
  exec: () => Promise.reject(error),
  readFile: () => Promise.reject(error),
  writeFile: () => Promise.reject(error),
  exportTar: () => Promise.reject(error),
});

const calls: [name: string, call: (driver: SessionDriver) => Promise<unknown>][] = [
  ["ownerOf", (driver) => driver.ownerOf("c", signal)],
  ["exec", (driver) => driver.exec("c", { command: ["true"] }, signal)],
  ["readFile", (driver) => driver.readFile("c", Buffer.from("/f"), signal)],
  ["writeFile", (driver) => driver.writeFile("c", { path: Buffer.from("/f"), content: nothing() }, signal)],
  ["exportTar", (driver) => driver.exportTar("c", signal)],
];

async function* nothing(): AsyncGenerator<Uint8Array> {
  // An empty file.
}

for (const [name, call] of calls) {
  test(`${name} on a host that does not answer names the host, and neither its address nor the engine's call`, async () => {
    const driver = await namedHosts(async () => failing(unreachable))("local", "here", signal);
    const failure = await call(driver).then(() => assert.fail("it answered"), asFailure);
    assert.deepEqual(
      [failure.status, failure.code, failure.message],
      [503, "HostUnreachable", "container host here of Runtime local does not answer this gateway"],
    );
    assert.match(failure.remediation ?? "", /kubectl describe runtime/);
    const { cause } = failure;
    assert.ok(cause instanceof RuntimeError);
    assert.equal(cause.cause, unreachable, "the log has all of it");
  });
}

test("a host that the Runtime has no more, or whose Secret is gone, is named as well", async () => {
  const drivers = namedHosts(() =>
    Promise.reject(new RuntimeError("HostUnreachable", "Secret system/tls has no ca.crt")),
  );
  const failure = await drivers("local", "here", signal).then(() => assert.fail("there is one"), asFailure);
  assert.equal(failure.message, "container host here of Runtime local does not answer this gateway");
});

test("whatever else a host says is passed on as it is", async () => {
  const error = new RuntimeError("ComputeNotRunning", "container c is not running");
  const driver = await namedHosts(async () => failing(error))("local", "here", signal);
  await assert.rejects(driver.exec("c", { command: ["true"] }, signal), error);
});
