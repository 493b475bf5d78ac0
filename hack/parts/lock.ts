import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir } from "node:fs/promises";
import { dirname } from "node:path";
import { PartFailed } from "./errors.ts";

/**
 * Runs `work` while no other process of this machine runs under the same lock file. The lock is the kernel's
 * (util-linux `flock`), held by a child that ends when its stdin closes: whoever dies, even by SIGKILL, lets go.
 * @throws the reason of `signal` when it aborts before the lock was taken.
 */
export async function withLock<T>(path: string, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
  await mkdir(dirname(path), { recursive: true });
  const holder = spawn("flock", ["--exclusive", path, "sh", "-c", "echo held; exec cat >/dev/null"], {
    stdio: ["pipe", "pipe", "inherit"],
    detached: true,
  });
  const closed = once(holder, "close");
  const letGo = (): void => {
    holder.stdin.end();
    // While still queueing, flock does not read stdin: it has nothing to lose from being killed.
    if (!held) holder.kill("SIGKILL");
  };
  let held = false;
  try {
    await Promise.race([
      once(holder.stdout, "data", { signal }),
      closed.then(() => Promise.reject(new PartFailed("flock", `could not lock ${path}`))),
    ]);
    held = true;
    return await work();
  } finally {
    letGo();
    await closed;
  }
}
