/** What the tests of the SDK share: a client, the gateway it reaches, and the leading controller, which is played. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import type { Gateway } from "../../../../operator/src/gateway/server.ts";
import { type AgentWorlds, AgentWorldsError, type Session } from "../../../../sdk/src/index.ts";
import type { Lab } from "../../gateway/fixture.ts";
import type { PlayedController } from "../played-controller.ts";

export interface Stand {
  readonly lab: Lab;
  readonly gateway: Gateway;
  readonly controller: PlayedController;
  readonly worlds: AgentWorlds;
}

/** A session that the controller has made Ready. */
export async function readySession({ worlds, controller }: Stand, name: string): Promise<Session> {
  const [session] = await Promise.all([worlds.sandboxes.create({ world: "hello", name }), controller.ready(name)]);
  return session;
}

/** For `assert.rejects`: an error of this class and code. */
export const refused = (code: string, of: new (...facts: never[]) => AgentWorldsError = AgentWorldsError) => {
  return (error: unknown): boolean => {
    assert.ok(error instanceof of, `${error}`);
    assert.equal(error.code, code, error.message);
    return true;
  };
};

export const exists = async (worlds: AgentWorlds, name: string): Promise<boolean> =>
  (await worlds.sandboxes.list()).some((sandbox) => sandbox.metadata.name === name);

/** How many answered requests the audit log has for a verb of a session. */
export async function posts(lab: Lab, name: string, subresource: string): Promise<number> {
  const lines = (await readFile(lab.cluster.auditLogPath, "utf8")).split("\n").filter((line) => line.endsWith("}"));
  return lines.filter((line) => {
    const { objectRef } = JSON.parse(line);
    return objectRef?.name === name && objectRef.subresource === subresource;
  }).length;
}
