/**
 * The import direction of the operator as a check that fails (docs/architecture.md): what is lower never imports what is
 * higher, only kube/ imports the Kubernetes client, and the SDK knows nothing of the operator.
 */
import { globSync, readFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";

/** For each folder of operator/src: the folders it may import from, itself always included. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  reconciler: [],
  kube: ["reconciler"],
  registry: ["reconciler", "kube"],
  runtime: ["reconciler", "kube", "registry"],
  snapshot: ["reconciler", "kube", "registry", "runtime"],
  world: ["reconciler", "kube", "registry", "runtime", "snapshot"],
  sandbox: ["reconciler", "kube", "registry", "runtime", "snapshot", "world"],
  gateway: ["reconciler", "kube", "registry", "runtime", "snapshot"],
  telemetry: ["reconciler"],
};

/** Files of operator/src itself and process/ put everything together. */
const COMPOSITION = "process";

const IMPORT = /(?:from\s+|import\s*\(\s*|^import\s+)"([^"]+)"/gm;

export interface Violation {
  readonly file: string;
  readonly line: number;
  readonly sentence: string;
}

/** Every import below `root` that breaks a rule. */
export function findViolations(root: string): Violation[] {
  const files = globSync(["operator/src/**/*.ts", "sdk/src/**/*.ts", "crds/**/*.ts"], { cwd: root }).filter(
    (file) => !file.includes("node_modules"),
  );
  return files.flatMap((file) => violationsOf(file, readFileSync(join(root, file), "utf8")));
}

/** Violations of one file; `file` is relative to the repository's root. */
export function violationsOf(file: string, text: string): Violation[] {
  return [...text.matchAll(IMPORT)].flatMap((match) => {
    const sentence = judgeImport(file, match[1] ?? "");
    if (sentence === undefined) return [];
    return [{ file, line: text.slice(0, match.index).split("\n").length, sentence }];
  });
}

/** Why this import is not allowed; undefined when it is. */
export function judgeImport(file: string, specifier: string): string | undefined {
  const parts = file.split(sep);
  if (specifier === "@kubernetes/client-node" && !file.startsWith(join("operator", "src", "kube") + sep)) {
    return "only operator/src/kube imports @kubernetes/client-node";
  }
  const target = specifier.startsWith(".") ? relative(".", join(dirname(file), specifier)) : undefined;
  if (
    parts[0] !== "operator" &&
    (specifier.startsWith("@agentworlds/operator") || target?.startsWith(`operator${sep}`))
  ) {
    // Tests of the packages may use the operator; what they publish may not.
    return isForTests(file) ? undefined : `${parts[0]} must not import the operator`;
  }
  if (parts[0] !== "operator" || target === undefined || isForTests(file)) return undefined;
  if (isForTests(target)) return `${specifier} is for tests`;
  const from = parts[2] ?? "";
  const to = target.split(sep)[2] ?? "";
  if (from === to || from === COMPOSITION || parts.length === 3) return undefined;
  const allowed = MAY_IMPORT[from];
  if (!allowed) return `operator/src/${from} is a folder that the import rule does not know`;
  if (allowed.includes(to)) return undefined;
  return `operator/src/${from} must not import ${target}`;
}

/** Tests, and what only tests import: neither is part of the product. */
const isForTests = (file: string): boolean => /\.test(-kit)?\.ts$/.test(file);

if (import.meta.main) {
  const violations = findViolations(join(import.meta.dirname, "..", ".."));
  for (const { file, line, sentence } of violations) process.stderr.write(`${file}:${line}: ${sentence}\n`);
  process.exitCode = violations.length === 0 ? 0 : 1;
}
