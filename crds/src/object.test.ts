import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { KubeObject } from "../../operator/src/reconciler/list-watch.ts";
import type { Runtime, Sandbox, World } from "./index.ts";
import { clip } from "./object.ts";

/** Compiles only while the three kinds can be mirrored by the operator's reflector. */
export type Mirrored = [Assignable<World>, Assignable<Sandbox>, Assignable<Runtime>];
type Assignable<T extends KubeObject> = T;

test("a text within the limit is left alone", () => assert.equal(clip("abc", 3), "abc"));

test("a longer text is cut and shows it", () => assert.equal(clip("abcd", 3), "ab…"));

test("a clipped text is never too long, never ends inside a character, and begins like the original", () => {
  fc.assert(
    fc.property(fc.string({ unit: "grapheme", maxLength: 40 }), fc.integer({ min: 1, max: 30 }), (original, max) => {
      const clipped = clip(original, max);
      assert.ok(clipped.length <= max);
      assert.ok(clipped.isWellFormed());
      assert.ok(clipped === original || original.startsWith(clipped.slice(0, -1)));
    }),
  );
});
