import { execFile } from "node:child_process";
import type { CredentialPlugin } from "./access.ts";
import { ConfigurationError } from "./errors.ts";
import { recordIn, textIn, timeIn } from "./json.ts";

/** What a plugin gave out. */
export interface PluginCredential {
  readonly token: string | undefined;
  readonly certificate: string | undefined;
  readonly key: string | undefined;
  /** Absent: good until it is refused. */
  readonly expiresAt: Date | undefined;
}

const PLUGIN_DEADLINE_MS = 60_000;
const MAX_OUTPUT_BYTES = 1024 * 1024;

/**
 * Runs the program, without a shell and without a terminal, for at most 60 s, and reads the ExecCredential it prints.
 * Throws `ConfigurationError`: `PluginMissing`, `PluginFailed`, `BadPluginOutput`.
 */
export async function runCredentialPlugin(
  plugin: CredentialPlugin,
  environment: Readonly<Record<string, string | undefined>>,
): Promise<PluginCredential> {
  const info = {
    apiVersion: plugin.apiVersion,
    kind: "ExecCredential",
    spec: { interactive: false, ...(plugin.cluster === undefined ? {} : { cluster: plugin.cluster }) },
  };
  const env = { ...environment, ...plugin.env, KUBERNETES_EXEC_INFO: JSON.stringify(info) };
  return credentialIn(await outputOf(plugin, env), plugin);
}

function outputOf(plugin: CredentialPlugin, env: Readonly<Record<string, string | undefined>>): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const child = execFile(
    plugin.command,
    [...plugin.args],
    { env: { ...env }, timeout: PLUGIN_DEADLINE_MS, killSignal: "SIGKILL", maxBuffer: MAX_OUTPUT_BYTES, shell: false },
    (error, stdout, stderr) => {
      if (error === null) resolve(stdout);
      else reject(pluginFailure(plugin, error, stderr));
    },
  );
  // A program that asks a question gets no answer instead of waiting for one.
  child.stdin?.on("error", () => undefined);
  child.stdin?.end();
  return promise;
}

function pluginFailure(
  plugin: CredentialPlugin,
  error: Error & { code?: unknown },
  stderr: string,
): ConfigurationError {
  if (error.code === "ENOENT") {
    return new ConfigurationError({
      code: "PluginMissing",
      message: `the credential plugin ${plugin.command} of the kubeconfig is not installed`,
      remediation: plugin.installHint ?? `install ${plugin.command}`,
    });
  }
  const how =
    typeof error.code === "number" ? `ended with ${error.code}` : "was ended: it took too long or said too much";
  // Not the error itself: its message repeats the arguments, and stdout may hold a token.
  return new ConfigurationError({
    code: "PluginFailed",
    message: `the credential plugin ${plugin.command} ${how}: ${stderr.trim().slice(0, 500)}`,
    remediation: "run it by hand; perhaps a login has expired",
  });
}

function credentialIn(output: string, plugin: CredentialPlugin): PluginCredential {
  let parsed: unknown;
  try {
    parsed = JSON.parse(output);
  } catch {
    // The parser's message quotes the text, and with it perhaps a token.
    parsed = undefined;
  }
  const status = recordIn(parsed, "status");
  const token = textIn(status, "token");
  const certificate = textIn(status, "clientCertificateData");
  const key = textIn(status, "clientKeyData");
  const isWhole = token !== undefined || (certificate !== undefined && key !== undefined);
  if (textIn(parsed, "apiVersion") !== plugin.apiVersion || !isWhole) {
    throw new ConfigurationError({
      code: "BadPluginOutput",
      message: `the credential plugin ${plugin.command} printed no ${plugin.apiVersion} ExecCredential with a token or a certificate`,
      remediation: "compare exec.apiVersion in the kubeconfig with what the program supports",
    });
  }
  return { token, certificate, key, expiresAt: timeIn(status, "expirationTimestamp") };
}
