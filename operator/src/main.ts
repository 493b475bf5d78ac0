/** The operator's entry point: arguments, settings, signals, exit code. Everything else is process/run.ts. */
import { parseArgs } from "node:util";
import { ConfigError, loadConfig, parseConfig } from "./config.ts";
import { ConnectionConfigError } from "./kube/connection.ts";
import { runOperator } from "./process/run.ts";
import { createLogger } from "./telemetry/logger.ts";

const USAGE = `agent-worlds operator

  --config FILE      settings (YAML); every key has an AGENTWORLDS_… variable
  --role ROLE        all (default), controller or gateway
  --kubeconfig FILE  default: KUBECONFIG, ~/.kube/config, the pod's service account
`;

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      config: { type: "string" },
      role: { type: "string" },
      kubeconfig: { type: "string" },
      help: { type: "boolean", short: "h" },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    return 0;
  }
  const loaded = await loadConfig({ file: values.config, environment: process.env });
  const config = values.role === undefined ? loaded : parseConfig({ ...loaded, role: values.role });
  const log = createLogger(config.log.level);
  const stop = new AbortController();
  for (const signal of ["SIGTERM", "SIGINT"] as const) {
    process.on(signal, () => {
      log.info({ signal }, "stopping");
      stop.abort(new Error(`received ${signal}`));
    });
  }
  try {
    await runOperator({
      config,
      connection:
        values.kubeconfig === undefined ? { kind: "ambient" } : { kind: "kubeconfig", path: values.kubeconfig },
      log,
      stop: stop.signal,
    });
    return 0;
  } catch (error) {
    if (stop.signal.aborted && error === stop.signal.reason) return 0;
    if (isOfSettings(error)) throw error;
    log.error({ err: error }, "the operator ended");
    return 1;
  }
}

/** Somebody has to change a setting; its message names which. */
const isOfSettings = (error: unknown): error is Error =>
  error instanceof ConfigError || error instanceof ConnectionConfigError;

try {
  process.exitCode = await main();
} catch (error) {
  const isExpected = isOfSettings(error) || (error instanceof TypeError && "code" in error);
  process.stderr.write(`${isExpected ? error.message : error instanceof Error ? error.stack : String(error)}\n`);
  process.exitCode = 2;
}
