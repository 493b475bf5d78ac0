import { randomBytes } from "node:crypto";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { binary } from "./binaries.ts";
import { createAuthority, issue } from "./certificates.ts";
import { type PartDirectory, partDirectory } from "./directory.ts";
import { PartFailed } from "./errors.ts";
import { send } from "./http.ts";
import { ensureProgram, type PackagedProgram } from "./packages.ts";
import { freePort, isPortFree } from "./ports.ts";
import { type RunningProcess, run, startProcess } from "./process.ts";

/** Which registry to start. */
export interface RegistryOptions {
  /** `v3`: distribution v3.0.0 compiled from its module (default); `v2`: Debian's docker-registry 2.8.2. */
  version?: "v3" | "v2";
  /** Default `none`. */
  auth?: "none" | "basic";
  /** Default false. */
  tls?: boolean;
  /** Default: a free one. */
  port?: number;
  /** Folder for data, keys and log; default: a temporary one that dispose removes. */
  directory?: string;
  /** Limits starting, compiling included. */
  signal: AbortSignal;
}

/** How to reach a registry. */
export interface RegistryAddress {
  /** `http://127.0.0.1:5055` */
  readonly url: string;
  /** `127.0.0.1:5055`, as image references begin. */
  readonly host: string;
  readonly username?: string;
  readonly password?: string;
  /** The CA that signed its certificate, PEM. */
  readonly caPem?: string;
}

/** A registry on loopback with deletion enabled, owned by this process. */
export interface Registry extends RegistryAddress, AsyncDisposable {
  /** What it stores: `docker/registry/v2/…` below. */
  readonly dataDirectory: string;
  pids(): number[];
  stop(): Promise<void>;
  /** On the same port, with the same data; resolves when it answers. Does nothing while it runs. */
  start(signal?: AbortSignal): Promise<void>;
  /** SIGKILL: an upload that was under way stays half done. Resolves when it is gone. */
  kill(): Promise<void>;
  /**
   * Runs its garbage collection on the data as it is: blobs that no manifest names are removed. The registry's own rule is
   * that nobody writes meanwhile.
   */
  collectGarbage(signal?: AbortSignal): Promise<void>;
}

/**
 * Starts a registry and waits until it answers.
 * @throws MissingProgram when Go (v3) or the package (v2) is absent; PartFailed when it does not come up or the port is taken.
 */
export async function startRegistry(options: RegistryOptions): Promise<Registry> {
  const { signal } = options;
  const command = await registryProgram(options.version ?? "v3", signal);
  if (options.port !== undefined && !(await isPortFree(options.port))) {
    throw new PartFailed("registry", `port ${options.port} of 127.0.0.1 is taken`);
  }
  const port = options.port ?? (await freePort());
  await using undo = new AsyncDisposableStack();
  const directory = undo.use(await partDirectory({ kind: "registry", given: options.directory }));
  const host = `127.0.0.1:${port}`;
  const access = options.auth === "basic" ? await writePasswords(directory.path, signal) : {};
  const trust = options.tls === true ? await writeCertificate(directory.path) : {};
  const address: RegistryAddress = {
    url: `${options.tls === true ? "https" : "http"}://${host}`,
    host,
    ...access,
    ...trust,
  };
  await writeFile(join(directory.path, configFile), configuration(directory.path, address));
  const server = undo.use(new RegistryProcess({ command, directory, address }));
  await server.start(signal);
  undo.move();
  return server;
}

const configFile = "config.json";

export const REGISTRY_V2: PackagedProgram = {
  program: "docker-registry",
  package: "docker-registry",
  purpose: "a registry of version 2",
};

async function registryProgram(version: "v3" | "v2", signal: AbortSignal): Promise<string> {
  if (version === "v3") return binary("registry", { signal });
  await ensureProgram(REGISTRY_V2, signal);
  return "docker-registry";
}

/** JSON, which is YAML. Version 2 and 3 read the same. */
function configuration(directory: string, address: RegistryAddress): string {
  const at = (name: string): string => join(directory, name);
  const tls = address.caPem === undefined ? {} : { tls: { certificate: at("tls.crt"), key: at("tls.key") } };
  const auth =
    address.username === undefined ? {} : { auth: { htpasswd: { realm: "agent-worlds", path: at("htpasswd") } } };
  return JSON.stringify({
    version: "0.1",
    log: { level: "warn", accesslog: { disabled: true } },
    storage: {
      filesystem: { rootdirectory: at("data") },
      delete: { enabled: true },
      maintenance: { uploadpurging: { enabled: false } },
    },
    http: { addr: address.host, secret: randomBytes(16).toString("hex"), ...tls },
    ...auth,
  });
}

/**
 * A user with a random password. The registry takes bcrypt only, which perl's crypt(3) makes (perl-base is on every
 * Debian, htpasswd is not); the password goes in by stdin, since arguments are visible to everybody.
 */
async function writePasswords(directory: string, signal: AbortSignal): Promise<{ username: string; password: string }> {
  const [username, password] = ["tester", randomBytes(18).toString("base64url")];
  const alphabet = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  const letters = [...randomBytes(21)].map((byte) => alphabet[byte % 64]).join("");
  // 128 bits end inside the 22nd letter: only these have its other bits unset.
  const salt = `$2b$05$${letters}${".Oeu"[randomBytes(1).readUInt8() % 4]}`;
  const hash = await run(["perl", "-e", 'my ($p, $s) = <STDIN>; chomp($p, $s); print crypt($p, $s) // ""'], {
    input: `${password}\n${salt}\n`,
    signal,
  });
  if (!/^\$2b\$05\$.{53}$/.test(hash))
    throw new PartFailed("registry", "crypt(3) of this machine does not know bcrypt");
  await writeFile(join(directory, "htpasswd"), `${username}:${hash}\n`, { mode: 0o600 });
  return { username, password };
}

async function writeCertificate(directory: string): Promise<{ caPem: string }> {
  const authority = createAuthority("agent-worlds-local-registry-ca");
  const serving = issue(authority, { commonName: "registry", usage: "server", names: ["127.0.0.1", "localhost"] });
  await writeFile(join(directory, "tls.crt"), serving.certPem);
  await writeFile(join(directory, "tls.key"), serving.keyPem, { mode: 0o600 });
  return { caPem: authority.certPem };
}

class RegistryProcess implements Registry {
  readonly url: string;
  readonly host: string;
  readonly username?: string;
  readonly password?: string;
  readonly caPem?: string;
  readonly dataDirectory: string;
  readonly #command: string;
  readonly #directory: PartDirectory;
  #process: RunningProcess | undefined;

  constructor(options: { command: string; directory: PartDirectory; address: RegistryAddress }) {
    const { address } = options;
    this.url = address.url;
    this.host = address.host;
    if (address.username !== undefined) this.username = address.username;
    if (address.password !== undefined) this.password = address.password;
    if (address.caPem !== undefined) this.caPem = address.caPem;
    this.dataDirectory = join(options.directory.path, "data");
    this.#command = options.command;
    this.#directory = options.directory;
  }

  pids(): number[] {
    return this.#process?.isRunning() ? [this.#process.pid] : [];
  }

  async start(signal = AbortSignal.timeout(60_000)): Promise<void> {
    if (this.#process?.isRunning()) return;
    const directory = this.#directory.path;
    await mkdir(this.dataDirectory, { recursive: true });
    this.#process = await startProcess({
      name: "registry",
      command: this.#command,
      args: ["serve", join(directory, configFile)],
      // Version 3 exports traces to port 4318 unless told not to.
      env: { PATH: process.env["PATH"], HOME: directory, OTEL_TRACES_EXPORTER: "none" },
      logPath: join(directory, "registry.log"),
    });
    await this.#process.ready((probe) => this.#answers(probe), { timeoutMs: 60_000, signal });
  }

  async stop(): Promise<void> {
    await this.#process?.stop(5_000);
  }

  async kill(): Promise<void> {
    await this.#process?.kill();
  }

  async collectGarbage(signal = AbortSignal.timeout(60_000)): Promise<void> {
    await run([this.#command, "garbage-collect", join(this.#directory.path, configFile)], {
      env: { PATH: process.env["PATH"], HOME: this.#directory.path, OTEL_TRACES_EXPORTER: "none" },
      signal,
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await using _directory = this.#directory;
    await this.stop();
  }

  async #answers(signal: AbortSignal): Promise<boolean> {
    const trust = this.caPem === undefined ? {} : { ca: this.caPem };
    const { status } = await send({ url: `${this.url}/v2/`, ...trust, signal });
    return status === (this.username === undefined ? 200 : 401);
  }
}
