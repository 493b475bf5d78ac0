import { callEngine } from "../../../hack/parts/engine-api.ts";
import type { FaultKind } from "../draw/faults.ts";
import type { FaultAct, FaultOutcome, Theatre } from "../faults.ts";

/** A command that takes more memory than its container has. */
const GREEDY = ["sh", "-c", "tail /dev/zero"];

export const CONTAINER_FAULTS = {
  containerKilled: (theatre, { choice }) =>
    onContainer(theatre, choice, (id) => call(theatre, "POST", `/containers/${id}/kill`)),

  containerStopped: (theatre, { choice }) =>
    onContainer(theatre, choice, (id) => call(theatre, "POST", `/containers/${id}/stop?t=1`)),

  containerRemoved: (theatre, { choice }) =>
    onContainer(theatre, choice, (id) => call(theatre, "DELETE", `/containers/${id}?force=true`)),

  // A command begun while another process freezes the container wedges an engine of 20.10: the quiet ones only.
  containerOutOfMemory: (theatre, { choice }) =>
    onContainer(theatre, Math.max(choice, BUSY), async (id) => {
      await call(theatre, "POST", `/containers/${id}/update`, { Memory: 48 << 20, MemorySwap: 48 << 20 });
      const exec = await call(theatre, "POST", `/containers/${id}/exec`, { Cmd: GREEDY });
      const { Id } = JSON.parse(exec);
      return call(theatre, "POST", `/exec/${Id}/start`, { Detach: true });
    }),
} satisfies Partial<Record<FaultKind, FaultAct>>;

/** Choices below it take a session with an operation on its way, if there is one. */
const BUSY = 0.6;

/** One of the sessions that run; one whose operation is on its way before all others. */
async function onContainer(
  theatre: Theatre,
  choice: number,
  act: (id: string) => Promise<string>,
): Promise<FaultOutcome> {
  const all = theatre.board.allSandboxes().filter(({ status }) => status.compute?.provisionedAt !== undefined);
  const busy = all.filter(({ status }) => status.operation !== undefined);
  const quiet = all.filter(({ status }) => status.operation === undefined);
  const among = busy.length > 0 && choice < BUSY ? busy : quiet;
  const victim = among[Math.floor(choice * 997) % Math.max(1, among.length)];
  const id = victim?.status.compute?.id;
  if (victim === undefined || id === undefined) return { cameTrue: false, detail: "no session runs" };
  const stage = victim.status.operation?.stage;
  const detail = `${victim.metadata.name}${stage === undefined ? "" : ` in stage ${stage}`}`;
  try {
    await act(id);
    return { cameTrue: true, detail };
  } catch (error) {
    // It was gone, frozen or not running by then.
    if (!(error instanceof EngineSaidNo)) throw error;
    return { cameTrue: false, detail: `${detail}: ${error.message}` };
  }
}

class EngineSaidNo extends Error {
  override readonly name = "EngineSaidNo";
}

async function call({ ground }: Theatre, method: string, path: string, json?: object): Promise<string> {
  const answer = await callEngine(ground.engine.dockerHost, {
    method,
    path,
    ...(json === undefined ? {} : { headers: { "content-type": "application/json" }, body: JSON.stringify(json) }),
    signal: AbortSignal.timeout(30_000),
  });
  if (answer.status >= 400) throw new EngineSaidNo(`${answer.status} ${answer.text.slice(0, 200)}`);
  return answer.text;
}
