/** The installation's registry and the source registries, with their credentials from Secrets of the operator's namespace. */
import { readFile } from "node:fs/promises";
import type { Config } from "../config.ts";
import type { KubeClient } from "../kube/contract.ts";
import { SECRETS, type Secret } from "../kube/resource-types.ts";
import { createRegistryClient } from "../registry/client.ts";
import { DOCKER_CONFIG_KEY, type DockerConfig, findLogin, parseDockerConfig } from "../registry/docker-config.ts";
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

export async function openRegistries(config: Config, kube: KubeClient, signal: AbortSignal): Promise<Registries> {
  const host = new URL(config.registry.url).host;
  const [login, ca, sourceLogins] = await Promise.all([
    loginFor(host, config, { kube, signal }),
    config.registry.caFile === undefined ? undefined : readFile(config.registry.caFile, "utf8"),
    dockerConfig(config.sources.credentialsSecret, config.namespace, { kube, signal }),
  ]);
  const client = createRegistryClient(
    {
      url: config.registry.url,
      ...(login === undefined ? {} : { login }),
      ...(ca === undefined ? {} : { ca }),
    },
    { policy: INSTALLATION_REGISTRY },
  );
  const registry = installationRegistry({
    client,
    prefix: config.registry.prefix,
    ...(config.registry.pullAs === undefined ? {} : { pullAs: config.registry.pullAs }),
  });
  const policy = config.sources.development === "Enabled" ? DEVELOPMENT_SOURCES : PUBLIC_SOURCES;
  const sources = createImageSources({
    target: client,
    logins: sourceLogins,
    policy: {
      ...policy,
      hosts: config.sources.allow ?? [],
      own: {
        registries: [host, ...(config.registry.pullAs === undefined ? [] : [config.registry.pullAs])],
        prefix: config.registry.prefix,
      },
    },
    ...(ca === undefined ? {} : { ownCa: ca }),
    ...(login === undefined ? {} : { ownLogin: login }),
  });
  return {
    registry,
    sources,
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
  const secret = await call.kube.resource<Secret>(SECRETS).get({ namespace, name }, { signal: call.signal });
  const value = secret.data?.[DOCKER_CONFIG_KEY];
  if (value === undefined) throw new CredentialsMissing(`Secret ${namespace}/${name} has no ${DOCKER_CONFIG_KEY}`);
  return parseDockerConfig(Buffer.from(value, "base64").toString("utf8"));
}
