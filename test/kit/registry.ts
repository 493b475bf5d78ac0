import { type Registry, type RegistryAddress, type RegistryOptions, startRegistry } from "../../hack/parts/registry.ts";
import { sharedParts } from "./shared.ts";

/** How a test wants its registry. */
export interface RegistryWish extends Omit<RegistryOptions, "signal"> {
  /** True: a registry of this test alone, which it may stop and start. */
  own?: boolean;
  /** Limits starting; default 10 minutes, since it may have to be compiled. */
  signal?: AbortSignal;
}

/**
 * A registry on loopback. The shared one (v3, no login, no TLS) where AGENTWORLDS_PARTS names one and nothing else was
 * asked for; else an own one that dispose ends. In a shared one use repositories below a name of your own.
 */
export function registry(wish: RegistryWish & { own: true }): Promise<Registry>;
export function registry(wish?: RegistryWish): Promise<RegistryAddress & AsyncDisposable>;
export async function registry(wish: RegistryWish = {}): Promise<RegistryAddress & AsyncDisposable> {
  const { own, signal, ...options } = wish;
  const shared = own === true || Object.keys(options).length > 0 ? undefined : await sharedParts();
  if (shared === undefined) return startRegistry({ ...options, signal: signal ?? AbortSignal.timeout(10 * 60_000) });
  return {
    ...shared.registry,
    async [Symbol.asyncDispose]() {
      // Whoever started it ends it.
    },
  };
}
