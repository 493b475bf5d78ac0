/**
 * Every reason that a controller gives in a condition or an Event is explained on the page of a kind (docs/spec): what it
 * means, and what to do. Reasons are found where they are written, as PascalCase literals.
 */
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** Where a literal is a reason: thrown policies, conditions, Events and the small helpers that make them. */
const PATTERNS = [
  /new (?:Terminal|Waiting)\(\s*"([A-Z][A-Za-z]+)"/g,
  /\breason: "([A-Z][A-Za-z]+)"/g,
  /\bsaid\(\s*"([A-Z][A-Za-z]+)"/g,
];

/** Reasons of versions and answers, which are not reasons of conditions. */
const OTHERS: ReadonlySet<string> = new Set(["Genesis", "BeyondKeepVersions", "Head"]);

/** Reasons written in a source text. */
export function reasonsIn(text: string): string[] {
  return PATTERNS.flatMap((pattern) => [...text.matchAll(pattern)].map((match) => match[1] ?? ""));
}

/** Reasons that the controllers give and no page explains, with the first file that gives them. */
export function unexplained(root: string): Map<string, string> {
  const pages = globSync("docs/spec/*.md", { cwd: root }).map((page) => readFileSync(join(root, page), "utf8"));
  const found = new Map<string, string>();
  const sources = globSync("operator/src/{world,sandbox,runtime}/**/*.ts", { cwd: root }).filter(
    (file) => !/\.test(-kit)?\.ts$|\/(memory|counted|test)-|\/(docker|fake)\//.test(file),
  );
  for (const file of sources) {
    for (const reason of reasonsIn(readFileSync(join(root, file), "utf8"))) {
      if (OTHERS.has(reason) || pages.some((page) => page.includes(`\`${reason}\``))) continue;
      if (!found.has(reason)) found.set(reason, file);
    }
  }
  return found;
}

if (import.meta.main) {
  const missing = unexplained(join(import.meta.dirname, "..", ".."));
  for (const [reason, file] of missing) process.stderr.write(`${file}: no page of docs/spec explains ${reason}\n`);
  process.exitCode = missing.size === 0 ? 0 : 1;
}
