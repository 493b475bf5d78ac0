/** A settled system is silent: counted in the API server's own audit log. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { startOperator } from "../../../hack/parts/operator.ts";
import { Stage } from "../../kit/stage.ts";

/** Longer than every period of the controllers but the ten-minute sweep: probes 30 s, looks at containers 30 s. */
const REST_MS = 60_000;

test("running, hibernated and closed Sandboxes, their Worlds and the Runtime cause no write in sixty seconds", async () => {
  await using stage = await Stage.open();
  await using _ = await startOperator({
    kubeconfigPath: stage.site.ground.kubeconfigPath,
    registryUrl: stage.site.ground.registryUrl,
    signal: stage.site.signal,
  });
  await Promise.all(
    (["run", "sleep", "close"] as const).map(async (end) => {
      const world = await stage.readyWorld();
      const sandbox = await stage.readySandbox(world);
      if (end === "sleep") await stage.setMode(sandbox, "Hibernated");
      if (end === "close") await stage.close(sandbox);
    }),
  );
  // Events and status of the last change are on their way for a moment.
  await sleep(3_000);
  const from = Date.now();
  // This measures a time span of the world outside; there is no condition to wait for.
  await sleep(REST_MS);
  const writes = (await readFile(stage.auditLogPath, "utf8"))
    .split("\n")
    .filter((line) => line.endsWith("}"))
    .map((line): AuditEvent => JSON.parse(line))
    .filter((event) => Date.parse(event.requestReceivedTimestamp) >= from)
    .filter((event) => /^(create|update|patch|delete)/.test(event.verb))
    .filter((event) => event.userAgent?.startsWith("agent-worlds"))
    // Leases are heartbeats; reviews write nothing.
    .filter(({ objectRef }) => objectRef?.resource !== "leases" && !objectRef?.resource?.endsWith("reviews"));
  assert.deepEqual(
    writes.map(({ verb, requestURI }) => `${verb} ${requestURI}`),
    [],
  );
});

interface AuditEvent {
  readonly verb: string;
  readonly requestURI: string;
  readonly requestReceivedTimestamp: string;
  readonly userAgent?: string;
  readonly objectRef?: { readonly resource?: string };
}
