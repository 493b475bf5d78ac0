import { readFile } from "node:fs/promises";
import type { Socket } from "node:net";
import { eventually } from "./wait.ts";

/** How long a reader that reads nothing is waited for. */
const patienceMs = 2_000;

/**
 * Waits until the other end of a loopback connection has taken everything that was sent, by the kernel's own count. A
 * reset overtakes what its reader has not read yet, and "exactly N bytes, then a reset" would be a wish.
 * Gives up silently after 2 s: a reader that does not read gets its reset all the same.
 */
export async function readByPeer(socket: Socket, signal: AbortSignal): Promise<void> {
  const [near, far] = [socket.localPort, socket.remotePort];
  if (near === undefined || far === undefined) return;
  const deadline = AbortSignal.timeout(patienceMs);
  await eventually(
    async () => deadline.aborted || nothingUnread(await readFile("/proc/net/tcp", "utf8"), { near, far }),
    { signal, intervalMs: 2, what: "the peer has read everything" },
  );
}

/**
 * Reads /proc/net/tcp (proc(5)): whether neither end of the IPv4 connection holds bytes, nothing being sent on the near
 * side and nothing unread on the far side. True for a connection that is not listed, since it is closed.
 */
export function nothingUnread(table: string, ports: { near: number; far: number }): boolean {
  const queues = table
    .split("\n")
    .slice(1)
    .map((line) => line.trim().split(/\s+/))
    .map(([, local = "", remote = "", , queue = ""]) => ({
      local: portOf(local),
      remote: portOf(remote),
      sending: Number.parseInt(queue.split(":")[0] ?? "0", 16),
      unread: Number.parseInt(queue.split(":")[1] ?? "0", 16),
    }));
  const near = queues.find(({ local, remote }) => local === ports.near && remote === ports.far);
  const far = queues.find(({ local, remote }) => local === ports.far && remote === ports.near);
  return (near?.sending ?? 0) === 0 && (far?.unread ?? 0) === 0;
}

function portOf(address: string): number {
  return Number.parseInt(address.split(":")[1] ?? "", 16);
}
