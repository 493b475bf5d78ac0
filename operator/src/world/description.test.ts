import assert from "node:assert/strict";
import { test } from "node:test";
import { versionOf, worldOf } from "../runtime/test-objects.test-kit.ts";
import { descriptionInForce, observedAfter } from "./description.ts";

interface Given {
  readonly spec?: string;
  readonly observed?: string;
  /** Of the versions that are listed. */
  readonly listed: readonly string[];
}

const given = ({ spec, observed, listed }: Given) =>
  worldOf({
    spec: spec === undefined ? {} : { description: spec },
    status: {
      versions: listed.map((description, number) => versionOf(number, { description })),
      ...(observed === undefined ? {} : { observedDescription: observed }),
    },
  });

const inForce: [name: string, given: Given, want: string][] = [
  ["none was ever stated", { listed: [""] }, ""],
  ["the spec's, before there is a version", { spec: "A", listed: [] }, "A"],
  ["what a snapshot stated is carried forward", { spec: "A", observed: "A", listed: ["A", "X"] }, "X"],
  ["a new one of the spec", { spec: "B", observed: "A", listed: ["A", "X"] }, "B"],
  ["one of the spec that comes back, though versions carry it", { spec: "A", observed: "B", listed: ["A", "B"] }, "A"],
  ["the snapshot's, though no version with the spec's is left", { spec: "A", observed: "A", listed: ["X", "X"] }, "X"],
  ["the last one, when the spec states none any more", { observed: "A", listed: ["A"] }, "A"],
  ["one that comes back after it was taken out", { spec: "A", observed: "", listed: ["A", "X"] }, "A"],
  ["an empty one of the spec blanks it", { spec: "", observed: "A", listed: ["A"] }, ""],
  ["nothing is remembered, and a version carries the spec's", { spec: "A", listed: ["A", "X"] }, "X"],
  ["nothing is remembered, and no version carries the spec's", { spec: "B", listed: ["A"] }, "B"],
];
for (const [name, world, want] of inForce) {
  test(`the prose in force: ${name}`, () => assert.equal(descriptionInForce(given(world)), want));
}

const remembered: [name: string, given: Given, made: string, want: string | undefined][] = [
  ["the spec's, which the version carries", { spec: "B", observed: "A", listed: ["A"] }, "B", "B"],
  ["the spec's is still new when a snapshot states another", { spec: "B", observed: "A", listed: ["A"] }, "X", "A"],
  ["the spec's was taken over before", { spec: "A", listed: ["A"] }, "X", "A"],
  ["changed since the capture, which has the old one", { spec: "B", observed: "A", listed: ["A"] }, "A", "A"],
  ["taken out of the spec", { observed: "A", listed: ["A"] }, "A", ""],
  ["never stated", { listed: [""] }, "", undefined],
];
for (const [name, world, made, want] of remembered) {
  test(`remembered of the spec after a version: ${name}`, () => assert.equal(observedAfter(given(world), made), want));
}
