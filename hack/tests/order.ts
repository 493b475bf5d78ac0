import { EVERY_UNIT } from "./files.ts";

/** Files that take long, most of it waiting: begun first, so that none of them is what everybody waits for at the end. */
export const LONGEST = [
  EVERY_UNIT,
  "test/chaos/sample.test.ts",
  "test/integration/operator/crash.test.ts",
  "test/integration/e2e/rest.test.ts",
  "test/integration/gateway/registration.test.ts",
  "test/integration/parts/command-line.test.ts",
  "test/conformance/driver/docker.test.ts",
  "test/integration/e2e/",
  "test/integration/operator/",
  "test/integration/reconciler/history.test.ts",
  "test/integration/gateway/",
  "test/integration/reconciler/",
  "test/integration/",
  "test/chaos/auditor.test.ts",
];

/** The order in which test files are run: the longest first. */
export function inOrder(files: readonly string[]): string[] {
  const rank = (file: string): number => {
    const found = LONGEST.findIndex((beginning) => file.startsWith(beginning));
    return found === -1 ? LONGEST.length : found;
  };
  return files.toSorted((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
}
