// Ends what `hack/up.ts` and `KEEP=1 hack/demo.ts` started, and removes what it made. Does nothing when nothing is up.
//   node hack/down.ts [--directory DIR]
import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { runCommandLine } from "./parts/command-line.ts";
import { isThere } from "./parts/directory.ts";
import { DOWN_WITHIN_MS, defaultDirectory, endParts, localPaths, removeEmpty } from "./parts/local.ts";
import { ownVariables } from "./parts/own-variables.ts";

await runCommandLine(async (words, stop) => {
  const { values } = parseArgs({
    args: [...words],
    options: { directory: { type: "string", default: defaultDirectory } },
  });
  const paths = localPaths(resolve(values.directory));
  const left = ownVariables(process.env, paths);
  if (!(await isThere(paths.directory))) return say(undefined, { directory: paths.directory, left });
  // Without the lock of `up`: who wants to end a start that hangs must not wait for it.
  const ended = await endParts(paths, AbortSignal.any([stop, AbortSignal.timeout(DOWN_WITHIN_MS)]));
  await removeEmpty(paths);
  return say(ended, { directory: paths.directory, left });
});

function say(ended: string | undefined, { directory, left }: { directory: string; left: readonly string[] }): 0 {
  const what = ended === undefined ? `nothing was up in ${directory}` : `ended in ${directory}: ${ended}`;
  const shell = left.length === 0 ? "" : `; this shell still names it: unset ${left.join(" ")}`;
  process.stderr.write(`${what}${shell}\n`);
  return 0;
}
