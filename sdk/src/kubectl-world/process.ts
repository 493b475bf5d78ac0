/** The process that `bin/kubectl-world` starts: its arguments, streams and signals, and its exit code. */
import { run } from "./main.ts";

const interrupted = new AbortController();
for (const name of ["SIGINT", "SIGTERM"] as const) {
  process.once(name, () => interrupted.abort(new Error(`interrupted by ${name}`)));
}
const { stdout, stderr } = process;
process.exitCode = await run(process.argv.slice(2), { stdout, stderr, signal: interrupted.signal });
