/**
 * Fills the tables of docs/configuration.md and docs/metrics.md from the settings' schema and the metrics' registry.
 * `node hack/generate-docs.ts` writes; with `--check` it writes nothing and fails when a page differs.
 */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { generatedPages } from "./docs/pages.ts";

const root = join(import.meta.dirname, "..");
const isCheck = process.argv.includes("--check");
const read = (path: string): Promise<string> => readFile(join(root, path), "utf8");

for (const { path, content } of await generatedPages(read)) {
  if ((await read(path)) === content) continue;
  if (isCheck) {
    console.error(`${path} is out of date: run \`make generate\` (npx node hack/generate-docs.ts)`);
    process.exitCode = 1;
  } else {
    await writeFile(join(root, path), content);
    console.log(`wrote ${path}`);
  }
}
