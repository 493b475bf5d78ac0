/**
 * A real operator process, put together by the product's own composition root, that dies by SIGKILL at the points which the
 * runner names. CHAOS_CONTROL: the folder of the control files. Arguments: settings file, kubeconfig.
 */
import { enableCompileCache, flushCompileCache } from "node:module";
import { join } from "node:path";
import { putUpGate } from "./gate/gate.ts";

// First: the clients that the product makes must find the gate standing.
const directory = process.env["CHAOS_CONTROL"];
if (directory === undefined) throw new TypeError("CHAOS_CONTROL names no folder");
putUpGate(directory);

// A process is started for each death: what the first one compiled is there for the next, which is killed and cannot leave it.
enableCompileCache(join(directory, "compiled"));
const { loadConfig } = await import("../../operator/src/config.ts");
const { runOperator } = await import("../../operator/src/process/run.ts");
const { createLogger } = await import("../../operator/src/telemetry/logger.ts");

flushCompileCache();

const [file, kubeconfig] = process.argv.slice(2);
if (file === undefined || kubeconfig === undefined) throw new TypeError("usage: operator-process.ts CONFIG KUBECONFIG");
const config = await loadConfig({ file, environment: {} });
const log = createLogger(config.log.level);
const stop = new AbortController();
process.once("SIGTERM", () => stop.abort(new Error("received SIGTERM")));
try {
  await runOperator({ config, connection: { kind: "kubeconfig", path: kubeconfig }, log, stop: stop.signal });
} catch (error) {
  if (!stop.signal.aborted || error !== stop.signal.reason) {
    log.error({ err: error }, "the operator ended");
    process.exitCode = 1;
  }
}
