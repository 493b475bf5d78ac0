/**
 * Writes what derives from the schemas: crds/generated/*.yaml and the field tables of docs/spec/*.md.
 * `node crds/generate.ts` writes; with `--check` it writes nothing and fails when a file differs.
 */
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { type GeneratedFile, generatedFiles } from "./src/generated-files.ts";

const root = dirname(import.meta.dirname);

async function main(check: boolean): Promise<number> {
  const readPage = (path: string): Promise<string> => readFile(join(root, path), "utf8");
  const stale: GeneratedFile[] = [];
  for (const file of await generatedFiles(readPage)) {
    if ((await contentOf(join(root, file.path))) !== file.content) stale.push(file);
  }
  if (check) {
    for (const file of stale)
      console.error(`${file.path} is out of date: run \`make generate\` (npx node crds/generate.ts)`);
    return stale.length === 0 ? 0 : 1;
  }
  for (const file of stale) {
    await mkdir(dirname(join(root, file.path)), { recursive: true });
    await writeFile(join(root, file.path), file.content);
    console.log(`wrote ${relative(process.cwd(), join(root, file.path))}`);
  }
  return 0;
}

/** Undefined when the file is not there yet. */
async function contentOf(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
}

process.exitCode = await main(process.argv.includes("--check"));
