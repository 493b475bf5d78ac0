import { readFile } from "node:fs/promises";
import type { CredentialPlugin, Material, UserAccess } from "./access.ts";
import { type PluginCredential, runCredentialPlugin } from "./credential-plugin.ts";
import { ConfigurationError } from "./errors.ts";

/** What proves the caller in one call. */
export interface Credentials {
  readonly token: string | undefined;
  /** PEM. */
  readonly certificate: string | undefined;
  readonly key: string | undefined;
}

/** A plugin's credential is renewed this long before it expires. */
const RENEW_BEFORE_MS = 30_000;

/** The caller's credentials: files are read at each call, since they rotate; a plugin runs when its answer expires. */
export class CredentialSource {
  readonly #user: UserAccess;
  readonly #environment: Readonly<Record<string, string | undefined>>;
  #issued: Promise<PluginCredential> | undefined;

  constructor(user: UserAccess, environment: Readonly<Record<string, string | undefined>>) {
    this.#user = user;
    this.#environment = environment;
  }

  /** Throws `ConfigurationError` when a file or the plugin fails. */
  async current(): Promise<Credentials> {
    const { token, tokenFile, certificate, key, plugin } = this.#user;
    // As with kubectl: what the file says outright comes before the plugin.
    const own = tokenFile === undefined ? token : (await readText(tokenFile)).trim();
    const stated = { token: own, certificate: await pemOf(certificate), key: await pemOf(key) };
    if (plugin === undefined || stated.token !== undefined || stated.certificate !== undefined) return stated;
    return this.#fromPlugin(plugin);
  }

  /** Forgets what the plugin said: a server refused it. */
  refresh(): void {
    this.#issued = undefined;
  }

  /** Calls at the same time share one run. */
  async #fromPlugin(plugin: CredentialPlugin): Promise<Credentials> {
    const held = this.#issued;
    if (held !== undefined) {
      const credential = await held;
      if (!isOld(credential)) return credential;
      if (this.#issued === held) this.#issued = undefined;
      return this.#fromPlugin(plugin);
    }
    const run = runCredentialPlugin(plugin, this.#environment);
    this.#issued = run;
    try {
      return await run;
    } catch (error) {
      // The next call tries again.
      if (this.#issued === run) this.#issued = undefined;
      throw error;
    }
  }
}

const isOld = ({ expiresAt }: PluginCredential): boolean =>
  expiresAt !== undefined && expiresAt.getTime() - RENEW_BEFORE_MS < Date.now();

/** The PEM itself. Throws `ConfigurationError` when its file cannot be read. */
export async function pemOf(material: Material | undefined): Promise<string | undefined> {
  if (material === undefined) return undefined;
  return material.kind === "Inline" ? material.pem : readText(material.path);
}

async function readText(path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (cause) {
    throw new ConfigurationError({
      code: "FileUnreadable",
      message: `${path} cannot be read: ${cause instanceof Error ? cause.message : String(cause)}`,
      remediation: "check that it exists and may be read",
      cause,
    });
  }
}
