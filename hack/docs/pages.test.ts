import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { overlay } from "../../operator/src/config.ts";
import { metricRows } from "./metrics-table.ts";
import { generatedPages } from "./pages.ts";
import { settingRows } from "./settings-table.ts";

const root = join(import.meta.dirname, "..", "..");
const read = (path: string): Promise<string> => readFile(join(root, path), "utf8");

for (const { path, content } of await generatedPages(read)) {
  test(`${path} is what the code says (else: npx node hack/generate-docs.ts)`, async () => {
    assert.equal(await read(path), content);
  });
}

test("every setting says what it is, and its variable is one that the operator takes", () => {
  const rows = settingRows();
  assert.ok(rows.length > 20, "the schema was walked");
  for (const { path, variable, meaning } of rows) {
    assert.notEqual(meaning, "", path);
    const [section, key] = path.split(".");
    const set = overlay({}, { [variable]: "x" });
    assert.deepEqual(set, key === undefined ? { [section ?? ""]: "x" } : { [section ?? ""]: { [key]: "x" } });
  }
});

test("every metric says what it is, in the product's name space, and in base units", () => {
  for (const { name, help, type, own } of metricRows()) {
    assert.match(name, /^agentworlds_/);
    assert.notEqual(help, "", name);
    if (own && type === "counter") assert.match(name, /_total$/);
    assert.doesNotMatch(name, /_(ms|milliseconds|kb|mb)(_|$)/);
  }
});
