// Ends what `hack/up.ts` and `KEEP=1 hack/demo.ts` started, and removes what it made. Does nothing when nothing is up.
//   node hack/down.ts [--directory DIR]
import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { runCommandLine } from "./parts/command-line.ts";
import { isThere } from "./parts/directory.ts";
import { DOWN_WITHIN_MS, defaultDirectory, endParts, localPaths, removeEmpty } from "./parts/local.ts";

await runCommandLine(async (words, stop) => {
  const { values } = parseArgs({
    args: [...words],
    options: { directory: { type: "string", default: defaultDirectory } },
  });
  const paths = localPaths(resolve(values.directory));
  if (!(await isThere(paths.directory))) return 0;
  // Without the lock of `up`: who wants to end a start that hangs must not wait for it.
  await endParts(paths, AbortSignal.any([stop, AbortSignal.timeout(DOWN_WITHIN_MS)]));
  await removeEmpty(paths);
  return 0;
});
