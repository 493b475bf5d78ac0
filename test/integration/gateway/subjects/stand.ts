/** What the tests of a running gateway share: who calls, how, and the leading controller's part. */
import type { SandboxRequestResult } from "@agentworlds/crds";
import type { Gateway } from "../../../../operator/src/gateway/server.ts";
import { eventually } from "../../../kit/index.ts";
import { LAB, type Lab, sessionPath } from "../fixture.ts";
import type { Caller, RawAnswer } from "../raw-request.ts";

/** One control plane with one gateway behind it, and three identities. */
export interface Stand {
  readonly lab: Lab;
  readonly gateway: Gateway;
  /** May do everything. */
  readonly owner: Caller;
  /** May look at everything. */
  readonly reader: Caller;
  /** May nothing. */
  readonly stranger: Caller;
}

export const post = (who: Caller, name: string, verb: string, body: unknown = {}): Promise<RawAnswer> =>
  who.send({ method: "POST", target: sessionPath(name, verb), body });

export const details = (answer: RawAnswer): Record<string, unknown> =>
  (answer.json["details"] ?? {}) as Record<string, unknown>;

export const DIGEST = `sha256:${"ab".repeat(32)}` as const;

/** Until a gateway has recorded the request. */
export async function asked(lab: Lab, name: string, id: string): Promise<void> {
  await eventually(async () => (await lab.read(name)).status.requests?.some((request) => request.id === id));
}

/** Answers a request as the leading controller does. */
export async function settle(
  lab: Lab,
  { name, id, result }: { name: string; id: string; result: SandboxRequestResult },
): Promise<void> {
  const requests = ((await lab.read(name)).status.requests ?? []).map((each) =>
    each.id === id ? { ...each, result } : each,
  );
  await lab.sandboxes.patchStatus({ namespace: LAB, name }, { status: { requests } }, { signal: lab.signal });
}
