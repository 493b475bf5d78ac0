// A second operator on one host ended with raw JSON and a stack, and named no setting.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ConfigError } from "../config.ts";
import { serveHealth } from "../telemetry/endpoints.ts";
import { onPort } from "./taken-port.ts";

test("a port that is taken is an error of its setting, which is named by both of its places", async () => {
  const first = await serveHealth({ port: 0, problems: () => [] });
  try {
    await assert.rejects(
      onPort("health", () => serveHealth({ port: first.port, problems: () => [] })),
      (error) => {
        assert.ok(error instanceof ConfigError);
        const named = `the port ${first.port} of health.port (AGENTWORLDS_HEALTH_PORT) is taken by another process`;
        assert.ok(error.message.startsWith(named), error.message);
        return true;
      },
    );
  } finally {
    await first.close();
  }
});

test("any other error stays what it is", async () => {
  const other = new TypeError("no");
  await assert.rejects(
    onPort("gateway", () => Promise.reject(other)),
    (error) => error === other,
  );
});
