/** The installation's own registry: where every World's repository lives, and under which name hosts know it. */
import type { RegistryClient, RegistryLogin } from "./contract.ts";

export interface InstallationRegistry {
  readonly client: RegistryClient;
  /** As fresh as the client's: read it for each use, never keep it. */
  readonly login: RegistryLogin | undefined;
  /** `host[:port]` as the operator names it. */
  readonly host: string;
  /** First path component of every repository. */
  readonly prefix: string;
  /** `host/repository` as the operator and `World.status` name it. */
  asWeNameIt(repository: string): string;
  /** `host/repository` as container hosts name it (`registry.pullAs`). */
  asHostsNameIt(repository: string): string;
}

export function installationRegistry(options: {
  client: RegistryClient;
  /** `host[:port]` under which hosts pull and push; absent: the operator's own name. */
  pullAs?: string;
  prefix: string;
}): InstallationRegistry {
  const host = new URL(options.client.endpoint.url).host;
  const hostsName = options.pullAs ?? host;
  return {
    client: options.client,
    get login() {
      return options.client.endpoint.login;
    },
    host,
    prefix: options.prefix,
    asWeNameIt: (repository) => `${host}/${repository}`,
    asHostsNameIt: (repository) => `${hostsName}/${repository}`,
  };
}

/** The same registry by another client; a spread would keep the login of this moment. */
export function withClient(registry: InstallationRegistry, client: RegistryClient): InstallationRegistry {
  const { host, prefix, asWeNameIt, asHostsNameIt } = registry;
  return {
    client,
    get login() {
      return registry.login;
    },
    host,
    prefix,
    asWeNameIt,
    asHostsNameIt,
  };
}

/** What a repository's name has of its World's UID. */
export const LINEAGE_ID_LENGTH = 8;

/** `<prefix>/<installation>/<namespace>/<world>-<first 8 of the UID>`: a World of the same name is a stranger. */
export function worldRepository(
  prefix: string,
  owner: { installation: string; namespace: string; world: string; uid: string },
): string {
  return `${prefix}/${owner.installation}/${owner.namespace}/${owner.world}-${owner.uid.slice(0, LINEAGE_ID_LENGTH)}`;
}

/** `<prefix>/<installation>/<namespace>/<world>/lineages`: lists the repositories of all Worlds of this one's name. */
export const lineageIndexBeside = (worldRepository: string): string =>
  `${worldRepository.slice(0, -(LINEAGE_ID_LENGTH + 1))}/lineages`;

/**
 * Whether a repository is that World's own, whatever prefix it was made under: it is read from status, which others may write,
 * and versions are booted from it, published into it and deleted in it.
 */
export const isRepositoryOf = (repository: string, owner: Parameters<typeof worldRepository>[1]): boolean =>
  repository.endsWith(worldRepository("", owner));
