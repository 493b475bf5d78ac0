import assert from "node:assert/strict";
import { test } from "node:test";
import { InvalidQuantity, isQuantity, type Quantity, quantityToBytes, quantityToCpus } from "./quantity.ts";

const amounts: [text: Quantity, amount: number][] = [
  ["1", 1],
  [2, 2],
  ["500m", 0.5],
  ["0.25", 0.25],
  [".5", 0.5],
  ["1.", 1],
  ["2Gi", 2 ** 31],
  ["2G", 2e9],
  ["1e3", 1000],
  ["1E3", 1000],
  ["1E", 1e18],
  ["100k", 100_000],
  ["1Ki", 1024],
];

for (const [text, amount] of amounts) {
  test(`${text} is ${amount}`, () => {
    assert.equal(quantityToCpus(text), amount);
    assert.ok(isQuantity(text));
  });
}

for (const text of ["", "lots", "2GB", "1 Gi", "1K", "Gi", "1.2.3", "0x10"]) {
  test(`${JSON.stringify(text)} is no quantity`, () => {
    assert.ok(!isQuantity(text));
    assert.throws(() => quantityToBytes(text), InvalidQuantity);
  });
}

for (const text of ["0", 0, "0Gi", -1, "-1Gi"]) test(`${text} is not above zero`, () => assert.ok(!isQuantity(text)));

test("a fraction of a byte is rounded up", () => assert.equal(quantityToBytes("1500m"), 2));
