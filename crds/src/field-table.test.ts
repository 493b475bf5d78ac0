import assert from "node:assert/strict";
import { test } from "node:test";
import { fieldTable, fillMarker, MarkerMissing } from "./field-table.ts";

const page = "# Page\n\nProse.\n\n<!-- generated: spec -->\nold\n<!-- end: spec -->\n\nMore prose.\n";

test("only what stands between the markers is replaced", () => {
  assert.equal(
    fillMarker(page, "spec", "new"),
    "# Page\n\nProse.\n\n<!-- generated: spec -->\n\nnew\n\n<!-- end: spec -->\n\nMore prose.\n",
  );
});

test("filling twice is filling once", () => {
  const once = fillMarker(page, "spec", "new");
  assert.equal(fillMarker(once, "spec", "new"), once);
});

test("a page without the markers is an error, not a page without a table", () => {
  assert.throws(() => fillMarker("# Page\n", "spec", "new"), MarkerMissing);
});

test("a table has every field with type, bound, default and description", () => {
  const table = fieldTable(
    {
      type: "object",
      required: ["a"],
      properties: {
        a: { description: "One | two.", type: "string", maxLength: 5 },
        b: { description: "Mode.", type: "string", enum: ["X", "Y"], default: "X" },
        c: {
          description: "List.",
          type: "array",
          maxItems: 2,
          items: {
            type: "object",
            properties: { d: { description: "Count.", type: "integer", minimum: 0, maximum: 2_147_483_647 } },
          },
        },
      },
    },
    "spec",
  );
  assert.deepEqual(table.split("\n").slice(2), [
    "| `spec.a` | string, ≤ 5 | required | One \\| two. |",
    "| `spec.b` | `X`, `Y` | `X` | Mode. |",
    "| `spec.c` | list of objects, ≤ 2 |  | List. |",
    "| `spec.c[].d` | integer ≥ 0 |  | Count. |",
  ]);
});
