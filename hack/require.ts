// Says everything that this machine lacks for a target of the Makefile, before the target begins anything.
//   node hack/require.ts test|bench|chaos
import { runCommandLine, UsageError } from "./parts/command-line.ts";
import { defaultDirectory, localPaths } from "./parts/local.ts";
import { forgetEndedParts } from "./parts/own-variables.ts";
import { expectPrepared } from "./parts/requirements.ts";
import { bench, chaos, test } from "./parts/undertakings.ts";

await runCommandLine(async ([name], stop) => {
  const undertaking = [test, bench, chaos].find((one) => one.name === `make ${name}`);
  if (undertaking === undefined) throw new UsageError("usage: require.ts test|bench|chaos");
  await forgetEndedParts(localPaths(defaultDirectory));
  await expectPrepared(undertaking, AbortSignal.any([stop, AbortSignal.timeout(60_000)]));
  return 0;
});
