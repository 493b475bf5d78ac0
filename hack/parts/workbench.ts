import { createHash } from "node:crypto";
import { mkdir, mkdtemp, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { defaultCacheDirectory } from "./binaries.ts";
import { isThere } from "./directory.ts";
import { MissingProgram } from "./errors.ts";
import { withLock } from "./lock.ts";
import { ensureProgram, type PackagedProgram } from "./packages.ts";
import { run } from "./process.ts";

const suite = "bookworm";
const packages = ["bash", "ca-certificates", "git", "make", "python3-minimal", "python3"];

export const DEBOOTSTRAP: PackagedProgram = {
  program: "debootstrap",
  package: "debootstrap",
  purpose: "the workbench base image",
};

/**
 * The root file system of the workbench image as a tar file: Debian's minimum with bash, git, make and python3. Made
 * once (minutes) and kept in the cache. debootstrap needs root.
 * @throws MissingProgram when debootstrap cannot be installed or this process is not root.
 */
export async function workbenchTar(signal: AbortSignal): Promise<string> {
  const path = cachedTar();
  const directory = dirname(path);
  if (await isThere(path)) return path;
  await ensureProgram(DEBOOTSTRAP, signal);
  if (process.getuid?.() !== 0) {
    throw new MissingProgram("debootstrap", "the workbench base image is made by debootstrap, which needs root");
  }
  await withLock(join(directory, "workbench.lock"), signal, async () => {
    if (!(await isThere(path))) await build(directory, path, signal);
  });
  return path;
}

/** Whether `workbenchTar` has it already: then it needs neither root nor debootstrap. */
export const workbenchIsMade = (): Promise<boolean> => isThere(cachedTar());

function cachedTar(): string {
  const key = createHash("sha256").update(JSON.stringify([suite, packages]));
  return join(defaultCacheDirectory(), key.digest("hex").slice(0, 24), "workbench.tar");
}

async function build(directory: string, path: string, signal: AbortSignal): Promise<void> {
  process.stderr.write("making the workbench root file system (once; takes minutes)\n");
  await mkdir(directory, { recursive: true });
  const scratch = await mkdtemp(join(directory, "unfinished-"));
  try {
    const root = join(scratch, "root");
    await run(["debootstrap", "--variant=minbase", `--include=${packages.join(",")}`, suite, root], {
      env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" },
      signal,
    });
    const tar = join(scratch, "workbench.tar");
    const left = ["./var/cache/apt/archives/*.deb", "./var/lib/apt/lists/*", "./var/log/*.log", "./dev/*"];
    await run(
      [
        ...["tar", "--create", "--numeric-owner", "--sort=name", "--format=posix"],
        ...left.map((pattern) => `--exclude=${pattern}`),
        ...["--directory", root, "--file", tar, "."],
      ],
      { signal },
    );
    await rename(tar, path);
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}
