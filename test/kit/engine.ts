import { borrowed, type Engine, startEngine } from "../../hack/parts/engine.ts";
import { sharedParts } from "./shared.ts";

/** How a test wants its container engine. */
export interface EngineWish {
  /** True: a private daemon of this test alone, never a shared one and never the machine's. */
  own?: boolean;
  /** Limits starting; default 5 minutes, since a package may have to be installed. */
  signal?: AbortSignal;
}

/** Why a test of an engine of its own is skipped; `false` where it can be had. */
export const whyNoOwnEngine = (): string | false =>
  process.getuid?.() === 0 ? false : "only root can start an engine of its own";

/**
 * A container engine: the shared one where AGENTWORLDS_PARTS names one, else that of DOCKER_HOST or the default socket,
 * else a private dockerd that dispose ends with everything in it. Remove your containers: it may not be yours alone.
 */
export async function engine(wish: EngineWish = {}): Promise<Engine> {
  const shared = wish.own === true ? undefined : await sharedParts();
  if (shared !== undefined) return borrowed(shared.engine.dockerHost);
  return startEngine({ own: wish.own ?? false, signal: wish.signal ?? AbortSignal.timeout(5 * 60_000) });
}
