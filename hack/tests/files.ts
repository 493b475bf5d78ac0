import { globSync } from "node:fs";

/** Runs every test of `UNIT` in its process. */
export const EVERY_UNIT = "hack/tests/every-unit.ts";

const UNIT = [
  "crds/**/*.test.ts",
  "operator/src/**/*.test.ts",
  "sdk/src/**/*.test.ts",
  "hack/**/*.test.ts",
  "test/kit/**/*.test.ts",
  // Its decisions; the runs themselves stand above these folders.
  "test/chaos/*/**/*.test.ts",
];
const WITH_PARTS = ["test/conformance/**/*.test.ts", "test/integration/**/*.test.ts", "test/chaos/*.test.ts"];

/** The test files that stand beside the code and need no parts, in the order of their names. */
export const unitFiles = (root: string): string[] => found(root, UNIT);

/** The test files that need real parts; each runs in a process of its own. */
export const filesWithParts = (root: string): string[] => found(root, WITH_PARTS);

function found(root: string, patterns: readonly string[]): string[] {
  const exclude = (name: string): boolean => name.includes("node_modules");
  return globSync([...patterns], { cwd: root, exclude }).sort();
}
