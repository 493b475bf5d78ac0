/** The installation's registry and the source registries, with their credentials from Secrets of the operator's namespace. */
import { readFile } from "node:fs/promises";
import { type Config, settingName } from "../config.ts";
import type { KubeClient } from "../kube/contract.ts";
import { isNotFound } from "../kube/errors.ts";
import { SECRETS, type Secret } from "../kube/resource-types.ts";
import { systemClock } from "../reconciler/clock.ts";
import { wordsOf } from "../reconciler/words-of.ts";
import { createRegistryClient } from "../registry/client.ts";
import { DOCKER_CONFIG_KEY, type DockerConfig, findLogin, parseDockerConfig } from "../registry/docker-config.ts";
import { createFreshClient, type RegistryCredentials } from "../registry/fresh-client.ts";
import { createImageSources } from "../registry/image-sources.ts";
import { type InstallationRegistry, installationRegistry } from "../registry/installation.ts";
import { DEVELOPMENT_SOURCES, INSTALLATION_REGISTRY, PUBLIC_SOURCES } from "../registry/source-policy.ts";
import type { ImageSources } from "../registry/sources.ts";

export interface Registries {
  readonly registry: InstallationRegistry;
  readonly sources: ImageSources;
  close(): Promise<void>;
}

/** A Secret that the configuration names holds no credentials. */
export class CredentialsMissing extends Error {
  override readonly name = "CredentialsMissing";
}

/**
 * Reads the credentials once, so that a wrong setting shows at the start, and again whenever they may have been rotated.
 * Throws `CredentialsMissing`.
 */
export async function openRegistries(
  config: Config,
  { installation, kube }: { installation: string; kube: KubeClient },
  signal: AbortSignal,
): Promise<Registries> {
  const { url, caFile, prefix, pullAs } = config.registry;
  const host = new URL(url).host;
  const read = async (until: AbortSignal): Promise<RegistryCredentials> => {
    const [login, ca] = await Promise.all([
      loginFor(host, config, { kube, signal: until }),
      caFile === undefined ? undefined : readCa(caFile, until),
    ]);
    return { login, ca };
  };
  const client = createFreshClient({
    url,
    first: await read(signal),
    read,
    open: (endpoint) => createRegistryClient(endpoint, { policy: INSTALLATION_REGISTRY }),
    clock: systemClock,
  });
  const policy = config.sources.development === "Enabled" ? DEVELOPMENT_SOURCES : PUBLIC_SOURCES;
  return {
    registry: installationRegistry({ client, prefix, ...(pullAs === undefined ? {} : { pullAs }) }),
    sources: createImageSources({
      target: client,
      logins: (until) => sourceLogins(config, { kube, signal: until }),
      policy: {
        ...policy,
        hosts: config.sources.allow ?? [],
        own: { registries: [host, ...(pullAs === undefined ? [] : [pullAs])], prefix, installation },
      },
    }),
    close: () => client.close(),
  };
}

async function readCa(file: string, signal: AbortSignal): Promise<string> {
  try {
    return await readFile(file, { encoding: "utf8", signal });
  } catch (error) {
    signal.throwIfAborted();
    const why = wordsOf(error);
    throw new CredentialsMissing(`${settingName(["registry", "caFile"])} cannot be read: ${why}`, { cause: error });
  }
}

async function loginFor(host: string, config: Config, call: { kube: KubeClient; signal: AbortSignal }) {
  const { credentialsSecret, prefix } = config.registry;
  if (credentialsSecret === undefined) return undefined;
  const setting = ["registry", "credentialsSecret"];
  const named = { namespace: config.namespace, name: credentialsSecret, setting };
  const found = findLogin(await dockerConfig(named, call), host, prefix);
  if (!found) throw unusable(named, `has no entry for ${host}`);
  return found;
}

async function sourceLogins(
  { sources, namespace }: Config,
  call: { kube: KubeClient; signal: AbortSignal },
): Promise<DockerConfig> {
  const name = sources.credentialsSecret;
  if (name === undefined) return parseDockerConfig('{"auths":{}}');
  return dockerConfig({ namespace, name, setting: ["sources", "credentialsSecret"] }, call);
}

interface NamedSecret {
  readonly namespace: string;
  readonly name: string;
  /** The setting that names it. */
  readonly setting: readonly string[];
}

const unusable = ({ namespace, name, setting }: NamedSecret, what: string, cause?: unknown): CredentialsMissing =>
  new CredentialsMissing(`Secret ${namespace}/${name}, named by ${settingName(setting)}, ${what}`, { cause });

async function dockerConfig(
  named: NamedSecret,
  call: { kube: KubeClient; signal: AbortSignal },
): Promise<DockerConfig> {
  const secret = await readSecret(named, call);
  const value = secret.data?.[DOCKER_CONFIG_KEY];
  if (value === undefined) throw unusable(named, `has no ${DOCKER_CONFIG_KEY}`);
  return parseDockerConfig(Buffer.from(value, "base64").toString("utf8"));
}

async function readSecret(
  named: NamedSecret,
  { kube, signal }: { kube: KubeClient; signal: AbortSignal },
): Promise<Secret> {
  const { namespace, name } = named;
  try {
    return await kube.resource<Secret>(SECRETS).get({ namespace, name }, { signal });
  } catch (error) {
    if (!isNotFound(error)) throw error;
    throw unusable(named, "does not exist", error);
  }
}
