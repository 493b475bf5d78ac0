import { access, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { defaultCacheDirectory } from "./binaries.ts";
import { MissingProgram, systemErrorCode } from "./errors.ts";
import { withLock } from "./lock.ts";
import { attempt, run } from "./process.ts";

/** A program that comes with a Debian package. */
export interface PackagedProgram {
  program: string;
  package: string;
  /** What it is needed for, for the message. */
  purpose: string;
}

const policyFile = "/usr/sbin/policy-rc.d";

/**
 * Makes sure a program is there, by installing its package where this process is root on a Debian machine. The
 * package's own service is not started.
 * @throws MissingProgram naming the package, where it cannot be installed; PartFailed when apt-get fails.
 */
export async function ensureProgram(wanted: PackagedProgram, signal: AbortSignal): Promise<void> {
  if (await isInstalled(wanted.program, signal)) return;
  if (process.getuid?.() !== 0 || !(await isInstalled("apt-get", signal))) {
    throw new MissingProgram(
      wanted.program,
      `${wanted.program} is not installed and is needed for ${wanted.purpose}: install the Debian package ${wanted.package}, or run as root on Debian to have it installed.`,
    );
  }
  await withLock(join(defaultCacheDirectory(), "packages.lock"), signal, async () => {
    if (await isInstalled(wanted.program, signal)) return;
    process.stderr.write(`installing the Debian package ${wanted.package} for ${wanted.purpose}\n`);
    await using _ = await servicesHeldBack();
    await install(wanted.package, signal);
  });
}

async function install(name: string, signal: AbortSignal): Promise<void> {
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  const command = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", name];
  const first = await attempt(command, { env, signal });
  if (first.code === 0) return;
  // Old package lists name versions that the mirror no longer has.
  await run(["apt-get", "update", "--quiet"], { env, signal });
  await run(command, { env, signal });
}

/** While held, packages do not start their services (exit 101 of policy-rc.d says "forbidden"). */
async function servicesHeldBack(): Promise<AsyncDisposable> {
  try {
    await writeFile(policyFile, "#!/bin/sh\nexit 101\n", { mode: 0o755, flag: "wx" });
  } catch (error) {
    if (systemErrorCode(error) !== "EEXIST") throw error;
    // The machine has a policy of its own; a started service is then its wish.
    await access(policyFile);
    return {
      async [Symbol.asyncDispose]() {
        // Not ours to remove.
      },
    };
  }
  return { [Symbol.asyncDispose]: () => rm(policyFile, { force: true }) };
}

/** Whether a program is in PATH or in one of the folders for administrators. */
export async function isInstalled(program: string, signal: AbortSignal): Promise<boolean> {
  const look = `PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"; command -v "$1"`;
  return (await attempt(["sh", "-c", look, "sh", program], { signal })).code === 0;
}
