/** The installation's registry and the source registries, with their credentials from Secrets of the operator's namespace. */
import { readFile } from "node:fs/promises";
import type { Config } from "../config.ts";
import type { KubeClient } from "../kube/contract.ts";
import { isNotFound } from "../kube/errors.ts";
import { SECRETS, type Secret } from "../kube/resource-types.ts";
import { systemClock } from "../reconciler/clock.ts";
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
      caFile === undefined ? undefined : readFile(caFile, { encoding: "utf8", signal: until }),
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
      logins: (until) => dockerConfig(config.sources.credentialsSecret, config.namespace, { kube, signal: until }),
      policy: {
        ...policy,
        hosts: config.sources.allow ?? [],
        own: { registries: [host, ...(pullAs === undefined ? [] : [pullAs])], prefix, installation },
      },
    }),
    close: () => client.close(),
  };
}

async function loginFor(host: string, config: Config, call: { kube: KubeClient; signal: AbortSignal }) {
  const { credentialsSecret, prefix } = config.registry;
  if (credentialsSecret === undefined) return undefined;
  const found = findLogin(await dockerConfig(credentialsSecret, config.namespace, call), host, prefix);
  if (!found) throw new CredentialsMissing(`Secret ${config.namespace}/${credentialsSecret} has no entry for ${host}`);
  return found;
}

async function dockerConfig(
  name: string | undefined,
  namespace: string,
  call: { kube: KubeClient; signal: AbortSignal },
): Promise<DockerConfig> {
  if (name === undefined) return parseDockerConfig('{"auths":{}}');
  const secret = await readSecret({ namespace, name }, call);
  const value = secret.data?.[DOCKER_CONFIG_KEY];
  if (value === undefined) throw new CredentialsMissing(`Secret ${namespace}/${name} has no ${DOCKER_CONFIG_KEY}`);
  return parseDockerConfig(Buffer.from(value, "base64").toString("utf8"));
}

async function readSecret(
  ref: { namespace: string; name: string },
  { kube, signal }: { kube: KubeClient; signal: AbortSignal },
): Promise<Secret> {
  try {
    return await kube.resource<Secret>(SECRETS).get(ref, { signal });
  } catch (error) {
    if (!isNotFound(error)) throw error;
    throw new CredentialsMissing(`Secret ${ref.namespace}/${ref.name} does not exist`, { cause: error });
  }
}
