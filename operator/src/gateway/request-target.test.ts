import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { singleValue, splitTarget } from "./request-target.ts";

const BASE = "/apis/sessions.agentworlds.dev/v1alpha1/namespaces/a/sandboxes/x";

const refused: [name: string, target: string][] = [
  ["a dot-dot segment", `${BASE}/../y/files`],
  ["a dot segment", `${BASE}/./files`],
  ["an empty segment", `${BASE}//files`],
  ["a trailing slash", `${BASE}/files/`],
  ["an encoded dot-dot", `${BASE}/%2e%2e/y/files`],
  ["an encoded dot-dot in capitals", `${BASE}/%2E%2E/y/files`],
  ["a half encoded dot-dot", `${BASE}/.%2e/y/files`],
  ["a doubly encoded dot-dot", `${BASE}/%252e%252e/y/files`],
  ["a threefold encoded dot-dot", `${BASE}/%25252E./y/files`],
  ["an encoded percent sign in the middle of dot-dot", `${BASE}/%2%65%2e`],
  ["an encoded slash", `${BASE}%2fy/files`],
  ["a doubly encoded slash", `${BASE}%252Fy/files`],
  ["an encoded backslash", `${BASE}%5c..%5cy/files`],
  ["a raw backslash", `${BASE}\\y`],
  ["an encoded NUL", `${BASE}%00/files`],
  ["a doubly encoded NUL", `${BASE}%2500/files`],
  ["an overlong dot", `${BASE}/%c0%ae%c0%ae/y`],
  ["a percent sign that encodes nothing", `${BASE}/%zz`],
  ["a percent sign at the end", `${BASE}/a%2`],
  ["an absolute target", "http://elsewhere/apis"],
  ["an asterisk", "*"],
  ["a fragment", `${BASE}/files#x`],
];
for (const [name, target] of refused) {
  test(`${name} is refused before routing`, () => {
    const split = splitTarget(target);
    assert.equal(split.kind, "refused");
    assert.equal(split.kind === "refused" && split.code, "BadPath");
  });
}

test("a plain target is split into its segments and its query", () => {
  const split = splitTarget(`${BASE}/files?path=%2Ftmp%2Fa+b%2B%3B%FF&mode=0644`);
  assert.ok(split.kind === "split");
  assert.deepEqual(split.segments.slice(-2), ["x", "files"]);
  const path = singleValue(split.query, "path");
  assert.deepEqual(Buffer.from(path as Uint8Array), Buffer.from("/tmp/a b+;\xff", "latin1"));
  assert.equal(singleValue(split.query, "absent"), undefined);
});

test("a raw semicolon in the query is refused, because some hops drop the parameter in silence", () => {
  const split = splitTarget(`${BASE}/files?path=/a;b`);
  assert.equal(split.kind === "refused" && split.code, "BadQuery");
});

test("a parameter given twice is reported, never the first or the last one taken", () => {
  const split = splitTarget(`${BASE}/files?path=/a&path=/b`);
  assert.equal(split.kind === "split" && singleValue(split.query, "path"), "repeated");
});

test("no encoding of a dot segment or separator gets through, at any depth and in any case", () => {
  const dangerous = fc.constantFrom(".", "..", "a/b", "../b", "a\\b", "a\0b", "");
  const encode = (text: string, depth: number, upper: boolean): string => {
    let out = text;
    for (let level = 0; level < depth; level++) {
      out = [...Buffer.from(out, "latin1")]
        .map((byte) => `%${upper ? byte.toString(16).toUpperCase() : byte.toString(16)}`)
        .map((part) => (part.length === 2 ? part.replace("%", "%0") : part))
        .join("");
    }
    return out;
  };
  fc.assert(
    fc.property(dangerous, fc.integer({ min: 1, max: 3 }), fc.boolean(), (text, depth, upper) => {
      assert.equal(splitTarget(`/apis/${encode(text, depth, upper)}/z`).kind, "refused");
    }),
  );
});

test("an accepted target never holds a segment that a further decoding turns into a dot segment or separator", () => {
  const alphabet = fc.constantFrom("%", "2", "5", "e", "E", "f", "0", "c", ".", "/", "a", "\\");
  fc.assert(
    fc.property(fc.array(alphabet, { maxLength: 24 }), (chars) => {
      const split = splitTarget(`/${chars.join("")}`);
      if (split.kind === "refused") return;
      for (let segment of split.segments) {
        for (;;) {
          assert.ok(segment !== "" && segment !== "." && segment !== ".." && !/[/\\\0]/.test(segment), segment);
          const next = lenientDecode(segment);
          if (next === segment) break;
          segment = next;
        }
      }
    }),
    { numRuns: 2_000 },
  );
});

test("every byte string survives as a query value", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => {
      const encoded = [...bytes].map((byte) => `%${byte.toString(16).padStart(2, "0")}`).join("");
      const split = splitTarget(`/x?path=${encoded}`);
      assert.ok(split.kind === "split");
      assert.deepEqual(singleValue(split.query, "path"), Uint8Array.from(bytes));
    }),
  );
});

function lenientDecode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch (error) {
    assert.ok(error instanceof URIError);
    return text;
  }
}
