import { PartFailed } from "../../../hack/parts/errors.ts";
import type { FaultKind } from "../draw/faults.ts";
import type { FaultAct } from "../faults.ts";
import type { Ground } from "../ground.ts";
import { lengthOf, pause } from "./hold.ts";

const HOUR_MS = 3_600_000;

export const HOST_FAULTS = {
  async engineRestart({ ground }) {
    await ground.engine.kill();
    const starts = await startPatiently(ground);
    return { cameTrue: true, detail: `SIGKILL of dockerd; its containers end (${starts} starts)` };
  },

  async hostPaused({ ground }, fault) {
    signalEngine(ground, "SIGSTOP");
    try {
      await pause(lengthOf(fault, 1_000, 5_000));
    } finally {
      signalEngine(ground, "SIGCONT");
    }
    return { cameTrue: true, detail: "SIGSTOP of dockerd" };
  },

  clockForward: (theatre, fault) => jump(theatre, HOUR_MS, lengthOf(fault, 1_000, 4_000)),
  clockBack: (theatre, fault) => jump(theatre, -HOUR_MS, lengthOf(fault, 1_000, 4_000)),
} satisfies Partial<Record<FaultKind, FaultAct>>;

/** As an init system does: one that gives up on its containerd, which takes its time with what was left behind, is started again. */
const MOST_STARTS = 6;

async function startPatiently({ engine }: Ground): Promise<number> {
  for (let starts = 1; ; starts++) {
    try {
      await engine.start();
      return starts;
    } catch (error) {
      if (!(error instanceof PartFailed) || starts === MOST_STARTS) throw error;
    }
  }
}

function signalEngine({ engine }: Ground, signal: "SIGSTOP" | "SIGCONT"): void {
  for (const pid of engine.pids()) process.kill(pid, signal);
}

/** The operators' clock is set wrong, and right again after a while. */
async function jump({ operators }: Parameters<FaultAct>[0], clockOffsetMs: number, milliseconds: number) {
  operators.set({ clockOffsetMs });
  await pause(milliseconds);
  operators.set({ clockOffsetMs: 0 });
  return { cameTrue: true, detail: `${clockOffsetMs / HOUR_MS} h for ${Math.round(milliseconds)} ms` };
}
