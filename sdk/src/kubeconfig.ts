import { dirname, resolve } from "node:path";
import type { Access, CredentialPlugin, Material, ServerAccess, UserAccess } from "./access.ts";
import { ConfigurationError } from "./errors.ts";
import { isRecord, type JsonRecord, recordIn, textIn } from "./json.ts";

/** A kubeconfig that was read. */
export interface KubeconfigFile {
  readonly path: string;
  /** Parsed YAML. */
  readonly content: unknown;
}

/** A named entry and the folder its relative paths start from. */
interface Entry {
  readonly fields: JsonRecord;
  readonly directory: string;
  readonly path: string;
}

const bad = (code: string, message: string, remediation: string): ConfigurationError =>
  new ConfigurationError({ code, message, remediation });

/**
 * Address and credentials of a context. Of several files the first that has an entry of a name, or a current context,
 * wins, as with kubectl. Throws `ConfigurationError`, also for what would otherwise be ignored in silence.
 */
export function accessFromKubeconfig(files: readonly KubeconfigFile[], context?: string): Access {
  const paths = files.map((file) => file.path).join(", ");
  const name =
    context ?? files.map((file) => textIn(file.content, "current-context")).find((each) => each !== undefined);
  if (name === undefined) {
    throw bad("NoContext", `${paths} has no current-context`, "set one, or name one with the option context");
  }
  const chosen = find(files, { list: "contexts", member: "context", name });
  if (chosen === undefined) {
    throw bad("ContextNotFound", `${paths} has no context ${name}`, "kubectl config get-contexts lists them");
  }
  const clusterName = textIn(chosen.fields, "cluster") ?? "";
  const cluster = find(files, { list: "clusters", member: "cluster", name: clusterName });
  if (cluster === undefined) {
    throw bad("ClusterNotFound", `context ${name} names the cluster ${clusterName}, which ${paths} has not`, "add it");
  }
  const userName = textIn(chosen.fields, "user");
  const user = userName === undefined ? undefined : find(files, { list: "users", member: "user", name: userName });
  if (userName !== undefined && user === undefined) {
    throw bad("UserNotFound", `context ${name} names the user ${userName}, which ${paths} has not`, "add it");
  }
  const server = serverOf(cluster, clusterName);
  return {
    server,
    user: user === undefined ? {} : userOf(user, { name: userName ?? "", cluster: cluster.fields, server }),
    namespace: textIn(chosen.fields, "namespace") ?? "default",
  };
}

/** The first file that names it wins, as kubectl has it. */
function find(
  files: readonly KubeconfigFile[],
  { list, member, name }: { list: string; member: string; name: string },
): Entry | undefined {
  for (const { path, content } of files) {
    const entries = isRecord(content) ? content[list] : undefined;
    if (!Array.isArray(entries)) continue;
    const entry: unknown = entries.find((each) => textIn(each, "name") === name);
    if (entry !== undefined) return { fields: recordIn(entry, member), directory: dirname(path), path };
  }
  return undefined;
}

function serverOf(entry: Entry, name: string): ServerAccess {
  const { fields } = entry;
  const server = textIn(fields, "server");
  if (server === undefined || !URL.canParse(server)) {
    throw bad("BadServer", `cluster ${name} in ${entry.path} has no valid server address`, "set its server");
  }
  return {
    server: server.replace(/\/+$/, ""),
    ca: materialOf(entry, "certificate-authority"),
    insecureSkipVerify: fields["insecure-skip-tls-verify"] === true,
    serverName: textIn(fields, "tls-server-name"),
    proxyUrl: textIn(fields, "proxy-url"),
  };
}

function userOf(entry: Entry, about: { name: string; cluster: JsonRecord; server: ServerAccess }): UserAccess {
  const { fields, path } = entry;
  if (isRecord(fields["auth-provider"])) {
    throw bad(
      "AuthProviderUnsupported",
      `user ${about.name} in ${path} uses an auth-provider, which Kubernetes removed in 1.26`,
      "use an exec credential plugin of your provider instead",
    );
  }
  const ignored = ["as", "as-uid", "as-groups", "as-user-extra", "username"].find((key) => fields[key] !== undefined);
  if (ignored !== undefined) {
    throw bad(
      "CredentialsUnsupported",
      `user ${about.name} in ${path} sets ${ignored}, which the SDK does not honour`,
      "use a context whose user has a token, a client certificate or an exec plugin and does not impersonate",
    );
  }
  const tokenFile = textIn(fields, "tokenFile");
  return {
    token: textIn(fields, "token"),
    tokenFile: tokenFile === undefined ? undefined : resolve(entry.directory, tokenFile),
    certificate: materialOf(entry, "client-certificate"),
    key: materialOf(entry, "client-key"),
    plugin: isRecord(fields["exec"]) ? pluginOf(entry, fields["exec"], about) : undefined,
  };
}

/** `<member>-data` (base64) wins over the file `<member>`, as with kubectl. */
function materialOf({ fields, directory }: Entry, member: string): Material | undefined {
  const data = textIn(fields, `${member}-data`);
  if (data !== undefined) return { kind: "Inline", pem: Buffer.from(data, "base64").toString("utf8") };
  const path = textIn(fields, member);
  return path === undefined ? undefined : { kind: "File", path: resolve(directory, path) };
}

const PLUGIN_VERSIONS = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

function pluginOf(
  entry: Entry,
  exec: JsonRecord,
  about: { name: string; cluster: JsonRecord; server: ServerAccess },
): CredentialPlugin {
  const command = textIn(exec, "command");
  const apiVersion = textIn(exec, "apiVersion") ?? "";
  const where = `the exec plugin of user ${about.name} in ${entry.path}`;
  if (command === undefined) throw bad("BadPlugin", `${where} has no command`, "set exec.command");
  if (!PLUGIN_VERSIONS.includes(apiVersion)) {
    throw bad("BadPlugin", `${where} has the apiVersion ${apiVersion}`, `use one of ${PLUGIN_VERSIONS.join(", ")}`);
  }
  if (exec["interactiveMode"] === "Always") {
    throw bad("PluginInteractive", `${where} wants a terminal, which a library has not`, "use one that does not");
  }
  const args: unknown[] = Array.isArray(exec["args"]) ? exec["args"] : [];
  const env: unknown[] = Array.isArray(exec["env"]) ? exec["env"] : [];
  return {
    apiVersion,
    // A bare name is looked up in PATH; anything with a slash is a path from the kubeconfig's folder.
    command: command.includes("/") ? resolve(entry.directory, command) : command,
    args: args.map(String),
    env: Object.fromEntries(env.map((each) => [textIn(each, "name") ?? "", textIn(each, "value") ?? ""])),
    installHint: textIn(exec, "installHint"),
    cluster: exec["provideClusterInfo"] === true ? clusterInfo(about) : undefined,
  };
}

/** The cluster as an ExecCredential names it. */
function clusterInfo({ cluster, server }: { cluster: JsonRecord; server: ServerAccess }): Record<string, unknown> {
  const extensions: unknown[] = Array.isArray(cluster["extensions"]) ? cluster["extensions"] : [];
  const extension = extensions.find((each) => textIn(each, "name") === "client.authentication.k8s.io/exec");
  return {
    server: server.server,
    ...(server.serverName === undefined ? {} : { "tls-server-name": server.serverName }),
    ...(server.insecureSkipVerify ? { "insecure-skip-tls-verify": true } : {}),
    ...(server.ca?.kind === "Inline" ? { "certificate-authority-data": cluster["certificate-authority-data"] } : {}),
    ...(server.proxyUrl === undefined ? {} : { "proxy-url": server.proxyUrl }),
    ...(isRecord(extension) ? { config: extension["extension"] } : {}),
  };
}
