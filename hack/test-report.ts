/**
 * A reporter beside node's own: which files took how long, and every test that was skipped, with its reason, so that none is
 * missed in silence. `node --test --test-reporter=…`
 */
import { relative } from "node:path";
import type { TestEvent } from "node:test/reporters";

const SLOWEST = 12;
const SECOND = 1_000;

/** Lines to print after the last test. */
// biome-ignore lint/style/noDefaultExport: node takes a reporter as the default export of its module
export default async function* report(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const files: { readonly name: string; readonly seconds: number }[] = [];
  const skipped: string[] = [];
  for await (const { type, data } of events) {
    if (type !== "test:complete") continue;
    const { name, file = "", skip, details } = data;
    const path = relative(process.cwd(), file);
    if (skip !== undefined && skip !== false) skipped.push(`${path}: ${name}${skip === true ? "" : `: ${skip}`}`);
    // A file is reported as a test of its own, by its path.
    if (name === path) files.push({ name, seconds: Math.round(details.duration_ms / SECOND) });
  }
  const slowest = files.toSorted((a, b) => b.seconds - a.seconds).slice(0, SLOWEST);
  for (const { name, seconds } of slowest.filter((each) => each.seconds > 0)) yield `${seconds} s in ${name}\n`;
  yield `${skipped.length} skipped\n`;
  for (const line of skipped) yield `skipped: ${line}\n`;
}
