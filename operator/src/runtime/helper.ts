import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { access, mkdir, mkdtemp, readdir, readFile, rename, rm } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Platform } from "@agentworlds/crds";

/** Directory inside every container where the helper is mounted read-only (DESIGN §11). */
export const HELPER_MOUNT = "/.agentworlds";
export const HELPER_FILE = "agentworlds-helper";
/** Path of the helper inside every container. */
export const HELPER_PATH = `${HELPER_MOUNT}/${HELPER_FILE}`;

/** The helper as it is put on hosts. */
export interface HelperBinary {
  readonly bytes: Uint8Array;
  /** First 16 hex digits of the SHA-256 of the bytes. */
  readonly version: string;
  readonly sha256: string;
}

/** There is no helper binary and none can be made. */
export class HelperUnavailable extends Error {
  override readonly name = "HelperUnavailable";
}

export interface HelperOptions {
  readonly platform: Platform;
  /** Setting `helperPath`: a ready binary. Absent: compiled with Go once and cached. */
  readonly helperPath?: string;
  /** Default `~/.cache/agent-worlds`. */
  readonly cacheDir?: string;
  /** Default: the sources beside this program. */
  readonly sourceDir?: string;
  /** The Go command. Default `go`. */
  readonly go?: string;
}

/** A cold build of a program without dependencies takes 10–20 s on two cores. */
const BUILD_DEADLINE_MS = 5 * 60_000;

/** Finds or builds the helper. Throws `HelperUnavailable` with one sentence that says what to do. */
export async function loadHelper(options: HelperOptions, signal: AbortSignal): Promise<HelperBinary> {
  return describe(await readFile(await helperFile(options, signal)).catch(unreadable));
}

const describe = (bytes: Uint8Array): HelperBinary => {
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  return { bytes, sha256, version: sha256.slice(0, 16) };
};

const unreadable = (cause: unknown): never => {
  throw new HelperUnavailable(`the helper binary cannot be read: ${messageOf(cause)}`, { cause });
};

/** Whether `loadHelper` has it without compiling: then no Go is needed. */
export async function isHelperBuilt(options: HelperOptions): Promise<boolean> {
  return exists(options.helperPath ?? (await cachedFile(options)));
}

async function helperFile(options: HelperOptions, signal: AbortSignal): Promise<string> {
  if (options.helperPath !== undefined) return options.helperPath;
  const target = await cachedFile(options);
  if (!(await exists(target))) await build(target, options, signal);
  return target;
}

const sourcesOf = ({ sourceDir }: HelperOptions): string =>
  sourceDir ?? fileURLToPath(new URL("../../helper", import.meta.url));

async function cachedFile(options: HelperOptions): Promise<string> {
  const cacheDir = options.cacheDir ?? join(homedir(), ".cache/agent-worlds");
  return join(cacheDir, await sourceHash(sourcesOf(options), options.platform), HELPER_FILE);
}

/** Content hash of what goes into the build: sources, module file and platform, not the tests. */
async function sourceHash(sourceDir: string, platform: Platform): Promise<string> {
  const hash = createHash("sha256").update(`${platform}\n`);
  const names = (await readdir(sourceDir).catch(unreadable)).filter((name) => name === "go.mod" || isSource(name));
  for (const name of names.sort()) hash.update(`${name}\n`).update(await readFile(join(sourceDir, name)));
  return hash.digest("hex").slice(0, 32);
}

const isSource = (name: string): boolean => name.endsWith(".go") && !name.endsWith("_test.go");

const exists = async (path: string): Promise<boolean> => {
  try {
    await access(path);
    return true;
  } catch {
    // Absent or unreadable: building says which.
    return false;
  }
};

async function build(target: string, options: HelperOptions, signal: AbortSignal): Promise<void> {
  await mkdir(dirname(target), { recursive: true });
  // A directory of its own and a rename: two builds at once do no harm, an interrupted one leaves no half binary.
  const work = await mkdtemp(join(dirname(target), "build-"));
  try {
    const output = join(work, HELPER_FILE);
    await promisify(execFile)(
      options.go ?? "go",
      ["build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", output, "."],
      {
        cwd: sourcesOf(options),
        signal: AbortSignal.any([signal, AbortSignal.timeout(BUILD_DEADLINE_MS)]),
        env: { ...process.env, CGO_ENABLED: "0", GOOS: "linux", GOARCH: options.platform.slice("linux/".length) },
      },
    ).catch((cause: unknown) => buildFailed(cause, signal));
    await rename(output, target);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

function buildFailed(cause: unknown, signal: AbortSignal): never {
  signal.throwIfAborted();
  if (cause instanceof Error && "code" in cause && cause.code === "ENOENT")
    throw new HelperUnavailable("the helper must be compiled and Go is not installed: install Go or set helperPath", {
      cause,
    });
  throw new HelperUnavailable(`compiling the helper failed: ${messageOf(cause)}`, { cause });
}

const messageOf = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause));
