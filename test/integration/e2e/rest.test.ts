/** A settled system is silent: counted in the API server's own audit log. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { startOperator } from "../../../hack/parts/operator.ts";
import { eventually } from "../../kit/index.ts";
import { Stage } from "../../kit/stage.ts";

/** Events and status of the last change are on their way for less than this. */
const QUIET_MS = 3_000;
/** Longer than every period of the controllers but the ten-minute sweep: probes 30 s, looks at containers 30 s. */
const REST_MS = 60_000;
const ENDS = ["run", "sleep", "close"] as const;
const SESSIONS = 12;

test("twelve Worlds with running, hibernated and closed Sandboxes, and the Runtime, cause no write in sixty seconds", async (t) => {
  await using stage = await Stage.open();
  await using _ = await startOperator({
    kubeconfigPath: stage.site.ground.kubeconfigPath,
    registryUrl: stage.site.ground.registryUrl,
    signal: stage.site.signal,
  });
  const ends = Array.from({ length: SESSIONS }, (_value, index) => ENDS[index % ENDS.length]);
  await Promise.all(
    ends.map(async (end) => {
      const world = await stage.readyWorld();
      const sandbox = await stage.readySandbox(world);
      if (end === "sleep") await stage.setMode(sandbox, "Hibernated");
      if (end === "close") await stage.close(sandbox);
    }),
  );
  const written = async () => operatorsWrites(await readFile(stage.auditLogPath, "utf8"));
  const newest = async () => Math.max(0, ...(await written()).map(({ at }) => at));
  await eventually(async () => Date.now() - (await newest()) > QUIET_MS, {
    timeoutMs: 60_000,
    intervalMs: 500,
    what: "the operator has written what the last change needs",
  });
  const from = Date.now();
  // This measures a time span of the world outside; there is no condition to wait for.
  await sleep(REST_MS);
  const writes = await written();
  const before = writes.filter(({ at }) => at < from);
  const during = writes.filter(({ at }) => at >= from);

  // The same filter must see the writes there were, or it would call anything silent.
  for (const what of [/^patch .*\/worlds\/w\d+\/status/, /^patch .*\/sandboxes\/s\d+\/status/, /^create .*\/events/]) {
    const seen = before.filter(({ request }) => what.test(request)).length;
    assert.ok(seen >= SESSIONS, `${what}: ${seen} among ${before.length} writes before the rest`);
  }
  t.diagnostic(`${before.length} writes before the rest, ${during.length} in it`);
  assert.deepEqual(
    during.map(({ request }) => request),
    [],
  );
});

/** What the operator's processes wrote, by the audit log. Leases are heartbeats; reviews write nothing. */
function operatorsWrites(auditLog: string): { at: number; request: string }[] {
  return auditLog
    .split("\n")
    .filter((line) => line.endsWith("}"))
    .map((line): AuditEvent => JSON.parse(line))
    .filter((event) => /^(create|update|patch|delete)/.test(event.verb))
    .filter((event) => event.userAgent?.startsWith("agent-worlds"))
    .filter(({ objectRef }) => objectRef?.resource !== "leases" && !objectRef?.resource?.endsWith("reviews"))
    .map((event) => ({
      at: Date.parse(event.requestReceivedTimestamp),
      request: `${event.verb} ${event.requestURI}`,
    }));
}

interface AuditEvent {
  readonly verb: string;
  readonly requestURI: string;
  readonly requestReceivedTimestamp: string;
  readonly userAgent?: string;
  readonly objectRef?: { readonly resource?: string };
}
