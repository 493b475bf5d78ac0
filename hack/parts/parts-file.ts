import { readFile } from "node:fs/promises";
import type { ProcessIdentity } from "./directory.ts";
import { PartFailed } from "./errors.ts";

/** What runs, written by whoever brought the parts up (`hack/up.ts`, `hack/with-parts.ts`) for others to find them. */
export interface PartsFile {
  /** Format of this file. */
  version: 1;
  /** The process that runs the parts and ends them on SIGTERM. */
  keeper: ProcessIdentity;
  controlPlane: { url: string; directory: string; kubeconfig: string; auditLog: string };
  /** `private`: whether the parts started the daemon, and so may do with it what they like. */
  engine: { dockerHost: string; private: boolean };
  registry: { url: string; host: string };
  /**
   * A cluster that somebody else runs and that the tests may use beside `controlPlane`. `kinds`: whether the CRDs are there
   * for the tests, or belong to somebody's installation, which no test may touch.
   */
  lent?: { kubeconfig: string; kinds: "Ours" | "Theirs" };
  /** Name (`busybox`) to image reference. */
  baseImages: Record<string, string>;
  /** The operator that runs beside them, after `make demo KEEP=1`. */
  operator?: { log: string; gatewayPort: number };
  /** The processes that the keeper started. */
  processes: ProcessIdentity[];
}

/** Reads a parts file. @throws PartFailed when it is not one; ENOENT when there is none. */
export async function readPartsFile(path: string): Promise<PartsFile> {
  const parsed: unknown = JSON.parse(await readFile(path, "utf8"));
  if (!isPartsFile(parsed)) throw new PartFailed("parts file", `${path} was not written by this version of hack/up.ts`);
  return parsed;
}

function isPartsFile(value: unknown): value is PartsFile {
  return (
    typeof value === "object" &&
    value !== null &&
    "version" in value &&
    value.version === 1 &&
    ["keeper", "controlPlane", "engine", "registry", "baseImages", "processes"].every((key) => key in value)
  );
}
