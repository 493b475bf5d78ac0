import type { LookupAddress, LookupOptions } from "node:dns";
import { lookup as systemLookup } from "node:dns";
import { getCACertificates } from "node:tls";
import { Agent, buildConnector } from "undici";
import { RegistryError } from "./errors.ts";
import { judgeAddress, type SourcePolicy } from "./source-policy.ts";

/** Asks DNS for every address of a name; Node's own by default. */
export type Lookup = (
  hostname: string,
  options: LookupOptions & { all: true },
  callback: (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void,
) => void;

export interface PinnedAgentOptions {
  readonly policy: SourcePolicy;
  /** PEM of a CA that is trusted beside the machine's own. */
  readonly ca?: string | undefined;
  readonly lookup?: Lookup | undefined;
}

/**
 * A connection pool that connects only to addresses the policy allows. The check sits in the lookup of the connection
 * itself: the address that was judged is the address that is connected to, so a name that resolves differently a moment
 * later (DNS rebinding) gains nothing. Literal addresses never reach a lookup; the transport judges them by URL.
 */
export function pinnedAgent(options: PinnedAgentOptions): Agent {
  const lookup: Lookup = options.lookup ?? systemLookup;
  const trust = options.ca === undefined ? {} : { ca: [...getCACertificates("default"), options.ca] };
  const connectors = new Map<string, buildConnector.connector>();

  const connect: buildConnector.connector = (target, callback) => {
    const origin = `${target.protocol}//${target.hostname}:${target.port}`;
    let connector = connectors.get(origin);
    if (connector === undefined) {
      const pinned = pinnedLookup(options.policy, target, lookup);
      connector = buildConnector({ ...trust, allowH2: false, lookup: pinned });
      connectors.set(origin, connector);
    }
    connector(target, callback);
  };
  // Silence is watched by our own deadlines, which know the difference between a call and a stream.
  return new Agent({ connect, allowH2: false, headersTimeout: 0, bodyTimeout: 0 });
}

type NetLookup = (
  hostname: string,
  options: LookupOptions,
  callback: (error: NodeJS.ErrnoException | null, address: string | LookupAddress[], family?: number) => void,
) => void;

/** Resolves and judges. One forbidden address refuses the name: an honest public host has none. */
function pinnedLookup(policy: SourcePolicy, host: { hostname: string; port: string }, lookup: Lookup): NetLookup {
  return (hostname, options, callback) => {
    lookup(hostname, { ...options, all: true }, (error, addresses) => {
      if (error !== null) return callback(error, []);
      for (const { address } of addresses) {
        const verdict = judgeAddress(policy, host, address);
        if (verdict.kind === "refused") return callback(new RegistryError("SourceNotAllowed", verdict.because), []);
      }
      const [first] = addresses;
      if (first === undefined)
        return callback(Object.assign(new Error(`${hostname} has no address`), { code: "ENOTFOUND" }), []);
      if (options.all === true) callback(null, addresses);
      else callback(null, first.address, first.family);
    });
  };
}
