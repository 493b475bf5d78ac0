import { z } from "zod";
import { RuntimeError } from "../errors.ts";
import { tolerate } from "./engine-errors.ts";
import type { EngineTransport } from "./transport.ts";

/** The bridge of all sessions of a host. Containers on it reach the outside, not each other. */
export const ISOLATED_NETWORK = "agentworlds-isolated";
const ICC_OPTION = "com.docker.network.bridge.enable_icc";

const inspectedNetwork = z.object({
  Driver: z.string(),
  Options: z.record(z.string(), z.string()).nullish(),
});

/** Makes the network exist and returns its name. */
export async function ensureNetwork(transport: EngineTransport, signal: AbortSignal): Promise<string> {
  if (!(await isIsolated(transport, signal))) {
    await createNetwork(transport, signal);
    if (!(await isIsolated(transport, signal))) throw new RuntimeError("HostRefused", "the network did not come to be");
  }
  return ISOLATED_NETWORK;
}

/** False: absent. A network of that name without isolation is refused, never used. */
async function isIsolated(transport: EngineTransport, signal: AbortSignal): Promise<boolean> {
  const path = `/networks/${ISOLATED_NETWORK}`;
  const found = await transport.json(inspectedNetwork, { method: "GET", path }, signal).catch(tolerate(404));
  if (found === undefined) return false;
  if (found.Driver !== "bridge" || found.Options?.[ICC_OPTION] !== "false")
    throw new RuntimeError(
      "HostRefused",
      `the host has a network ${ISOLATED_NETWORK} that lets containers reach each other: remove it`,
    );
  return true;
}

/** 409: somebody else was faster. */
async function createNetwork(transport: EngineTransport, signal: AbortSignal): Promise<void> {
  const json = {
    Name: ISOLATED_NETWORK,
    CheckDuplicate: true,
    Driver: "bridge",
    Options: { [ICC_OPTION]: "false" },
  };
  await transport.done({ method: "POST", path: "/networks/create", json, ms: 60_000 }, signal).catch(tolerate(409));
}
