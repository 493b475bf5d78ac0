import assert from "node:assert/strict";
import { test } from "node:test";
import { callEngine, expectSuccess } from "../../../hack/parts/engine-api.ts";
import { rememberEngine } from "../../../hack/parts/engine-residue.ts";
import { engine, whyNoOwnEngine } from "../../kit/index.ts";

test("an engine that is not ours keeps what it had and loses what the product has added", {
  skip: whyNoOwnEngine(),
}, async () => {
  await using docker = await engine({ own: true });
  const signal = AbortSignal.timeout(60_000);
  const call = async (method: string, path: string, body?: unknown): Promise<string> =>
    expectSuccess(
      path,
      await callEngine(docker.dockerHost, {
        method,
        path,
        headers: { "content-type": "application/json" },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        signal,
      }),
    );
  const networks = async (): Promise<string[]> =>
    JSON.parse(await call("GET", "/networks")).map(({ Name }: { Name: string }) => Name);
  const volumes = async (): Promise<string[]> =>
    (JSON.parse(await call("GET", "/volumes")).Volumes ?? []).map(({ Name }: { Name: string }) => Name);

  await call("POST", "/networks/create", { Name: "agentworlds-before", Internal: true });
  await call("POST", "/volumes/create", { Name: "somebody-elses" });
  {
    await using _ = await rememberEngine(docker.dockerHost, { registryHost: "127.0.0.1:5055", signal });
    await call("POST", "/networks/create", { Name: "agentworlds-isolated", Internal: true });
    await call("POST", "/volumes/create", { Name: "agentworlds-helper-1" });
    await call("POST", "/volumes/create", { Name: "somebody-elses-new" });
  }
  assert.deepEqual(
    (await networks()).filter((name) => name.startsWith("agentworlds")),
    ["agentworlds-before"],
  );
  assert.deepEqual((await volumes()).sort(), ["somebody-elses", "somebody-elses-new"]);
});
