import { randomInt } from "node:crypto";
import { readFile, rm, writeFile } from "node:fs/promises";
import { PartFailed, systemErrorCode } from "./errors.ts";
import { attempt, run } from "./process.ts";

/** The addresses and links that one private dockerd uses, chosen so that they collide with nobody. */
export interface EngineNetwork {
  /** Name of its default bridge. */
  bridge: string;
  /** `10.x.y.1/24`, the address of that bridge. */
  bridgeAddress: string;
  /** `10.x.(y+8).0/21`, where every other network of it gets its subnet. */
  pool: string;
  /** First three octets that are ours: the second octet, and the third from `low` to `low + 15`. */
  second: number;
  low: number;
}

/** What dockerd changes for the whole machine when it is the first one; put back by the last of ours. */
interface MachineBefore {
  ipForward: string;
  forwardPolicy: string;
}

const ipForwardFile = "/proc/sys/net/ipv4/ip_forward";
/** Below /run: what it remembers ends with the boot. */
const beforeFile = "/run/agent-worlds-network-before.json";

/** Chooses a /20 of 10.0.0.0/8 that no address and no route of this machine touches. */
export async function chooseEngineNetwork(id: string, signal: AbortSignal): Promise<EngineNetwork> {
  const taken = `${await run(["ip", "route", "show", "table", "all"], { signal })}${await run(["ip", "addr"], { signal })}`;
  let network = candidate(id);
  while (new RegExp(`\\b10\\.${network.second}\\.`).test(taken)) network = candidate(id);
  return network;
}

/** Makes the bridge, which dockerd wants to find. */
export async function createEngineNetwork(network: EngineNetwork, signal: AbortSignal): Promise<void> {
  await rememberMachine(signal);
  await run(["ip", "link", "add", "name", network.bridge, "type", "bridge"], { signal });
  await run(["ip", "addr", "add", network.bridgeAddress, "dev", network.bridge], { signal });
  await run(["ip", "link", "set", network.bridge, "up"], { signal });
}

function candidate(id: string): EngineNetwork {
  const second = randomInt(64, 250);
  const low = 16 * randomInt(0, 16);
  return {
    // Link names end at 15 characters.
    bridge: `awe-${id}`,
    bridgeAddress: `10.${second}.${low}.1/24`,
    pool: `10.${second}.${low + 8}.0/21`,
    second,
    low,
  };
}

/** Whether an IPv4 address (with or without prefix length) belongs to the network. */
export function ownsAddress(network: EngineNetwork, address: string): boolean {
  const match = /^10\.(\d+)\.(\d+)\.\d+(?:\/\d+)?$/.exec(address);
  const third = Number(match?.[2]);
  return Number(match?.[1]) === network.second && third >= network.low && third < network.low + 16;
}

/** Removes links, packet-filter rules and, after the last dockerd, what dockerd changed for the whole machine. */
export async function removeEngineNetwork(network: EngineNetwork, signal: AbortSignal): Promise<void> {
  const links = ownedLinks(network, await run(["ip", "-o", "-4", "addr"], { signal }));
  for (const link of new Set([...links, ...(await exists(network.bridge, signal))])) {
    await run(["ip", "link", "delete", link], { signal });
  }
  const saved = await run(["iptables-save"], { signal });
  for (const rule of ownedRules(network, [...links, network.bridge], saved)) {
    await deleteRule(rule, signal);
  }
  await restoreMachine(signal);
}

/** A dockerd that starts or ends at the same time may have taken the rule away already. */
async function deleteRule(rule: FilterRule, signal: AbortSignal): Promise<void> {
  const command = ["iptables", "--wait", "10", "--table", rule.table, "--delete", ...rule.args];
  const { code, stderr } = await attempt(command, { signal });
  if (code === 0 || /does a matching rule exist|No chain\/target\/match/.test(stderr)) return;
  throw new PartFailed("iptables", `${command.slice(3).join(" ")}: ${stderr.trim()}`);
}

async function exists(link: string, signal: AbortSignal): Promise<string[]> {
  const all = await run(["ip", "-o", "link"], { signal });
  return all.split("\n").some((line) => line.split(/:\s+|@/)[1] === link) ? [link] : [];
}

/** Names of links with an address of ours, from `ip -o -4 addr`. */
export function ownedLinks(network: EngineNetwork, addresses: string): string[] {
  return addresses.split("\n").flatMap((line) => {
    const match = /^\d+:\s+(\S+)\s+inet\s+(\S+)/.exec(line);
    return match?.[1] !== undefined && match[2] !== undefined && ownsAddress(network, match[2]) ? [match[1]] : [];
  });
}

/** One rule as `iptables --delete` wants it. */
export interface FilterRule {
  table: string;
  args: string[];
}

/** The rules of `iptables-save` that name one of our links or addresses. */
export function ownedRules(network: EngineNetwork, links: readonly string[], saved: string): FilterRule[] {
  return rules(saved).filter((rule) =>
    rule.args.some((word) => links.includes(word) || ownsAddress(network, word.replace(/:\d+$/, ""))),
  );
}

function rules(saved: string): FilterRule[] {
  let table = "";
  const found: FilterRule[] = [];
  for (const line of saved.split("\n")) {
    if (line.startsWith("*")) table = line.slice(1).trim();
    if (line.startsWith("-A ")) found.push({ table, args: line.slice(3).trim().split(" ") });
  }
  return found;
}

/**
 * dockerd empties Docker's chains when it starts, those of other daemons included: puts back what was in `before`
 * (an `iptables-save`) and is gone. Ours are told apart by what they name.
 */
export async function restoreOthersRules(before: string, signal: AbortSignal): Promise<void> {
  const now = new Set(rules(await run(["iptables-save"], { signal })).map((rule) => JSON.stringify(rule)));
  const lost = rules(before).filter((rule) => isLinkRule(rule) && !now.has(JSON.stringify(rule)));
  // At the head of its chain each: the chains end in a RETURN. From the last to the first, so that the order stays.
  for (const { table, args } of lost.reverse()) {
    await run(["iptables", "--wait", "10", "--table", table, "--insert", ...args], { signal });
  }
}

function isLinkRule(rule: FilterRule): boolean {
  return mentionsDockerChain(rule) && rule.args.some((word) => word === "-i" || word === "-o" || word === "-d");
}

/** Every packet-filter rule of the machine, as `iptables-save` prints it. */
export function packetFilter(signal: AbortSignal): Promise<string> {
  return run(["iptables-save"], { signal });
}

async function rememberMachine(signal: AbortSignal): Promise<void> {
  const saved = await run(["iptables-save"], { signal });
  if (/^:DOCKER-USER /m.test(saved)) return;
  const before: MachineBefore = {
    ipForward: (await readFile(ipForwardFile, "utf8")).trim(),
    forwardPolicy: /^\*filter[^*]*?^:FORWARD (\w+)/ms.exec(saved)?.[1] ?? "ACCEPT",
  };
  await writeFile(beforeFile, JSON.stringify(before));
}

/** Does nothing while another dockerd has a bridge, or when the first dockerd was not ours. */
async function restoreMachine(signal: AbortSignal): Promise<void> {
  const saved = await run(["iptables-save"], { signal });
  const before = await readBefore();
  if (before === undefined || hasDockerBridge(saved)) return;
  for (const rule of rules(saved)) {
    if (!mentionsDockerChain(rule)) continue;
    await run(["iptables", "--wait", "10", "--table", rule.table, "--delete", ...rule.args], { signal });
  }
  for (const { table, chain } of dockerChains(saved)) {
    await run(["iptables", "--wait", "10", "--table", table, "--delete-chain", chain], { signal });
  }
  await run(["iptables", "--wait", "10", "--policy", "FORWARD", before.forwardPolicy], { signal });
  await writeFile(ipForwardFile, before.ipForward);
  await rm(beforeFile, { force: true });
}

async function readBefore(): Promise<MachineBefore | undefined> {
  try {
    const match = /^\{"ipForward":"([01])","forwardPolicy":"(ACCEPT|DROP)"\}$/.exec(await readFile(beforeFile, "utf8"));
    if (match?.[1] === undefined || match[2] === undefined) return undefined;
    return { ipForward: match[1], forwardPolicy: match[2] };
  } catch (error) {
    if (systemErrorCode(error) === "ENOENT") return undefined;
    throw error;
  }
}

/** Whether some bridge still sends its traffic through Docker's chain. */
export function hasDockerBridge(saved: string): boolean {
  return /^-A FORWARD -o \S+ -j DOCKER$/m.test(saved);
}

function mentionsDockerChain(rule: FilterRule): boolean {
  return rule.args.some((word) => /^DOCKER(-|$)/.test(word));
}

function dockerChains(saved: string): { table: string; chain: string }[] {
  let table = "";
  return saved.split("\n").flatMap((line) => {
    if (line.startsWith("*")) table = line.slice(1).trim();
    const chain = /^:(DOCKER\S*) /.exec(line)?.[1];
    return chain === undefined ? [] : [{ table, chain }];
  });
}
