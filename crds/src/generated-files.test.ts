import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import { generatedFiles } from "./generated-files.ts";

const root = dirname(dirname(import.meta.dirname));
const read = (path: string): Promise<string> => readFile(join(root, path), "utf8");
const files = await generatedFiles(read);

for (const { path, content } of files) {
  test(`${path} is what the schemas say (else: npx node crds/generate.ts)`, async () => {
    assert.equal(await read(path), content);
  });
}

test("every generated YAML is free of anchors and parses without warnings", () => {
  for (const { path, content } of files.filter((file) => file.path.endsWith(".yaml"))) {
    for (const document of parseAllDocuments(content)) {
      assert.deepEqual([...document.errors, ...document.warnings], [], path);
    }
    assert.doesNotMatch(content, /: [&*]a\d+$/m, path);
  }
});
