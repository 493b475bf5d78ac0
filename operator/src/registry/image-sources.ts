import type { Platform } from "../runtime/contract.ts";
import { createRegistryClient, type RegistryClientOptions } from "./client.ts";
import type { RegistryClient, RegistryLogin } from "./contract.ts";
import { copyImage, resolveImage } from "./copy.ts";
import { type DockerConfig, findLogin } from "./docker-config.ts";
import { RegistryError } from "./errors.ts";
import { canonicalRegistry, type ImageReference, manifestReference, parseReference, registryUrl } from "./reference.ts";
import { judgeReference, type SourcePolicy } from "./source-policy.ts";
import type { ImageSources } from "./sources.ts";

export interface ImageSourcesOptions {
  /** The installation's registry, which copies go to. */
  readonly target: RegistryClient;
  readonly logins: DockerConfig;
  readonly policy: SourcePolicy;
  /** How the installation's registry is reached when an image outside its prefix is the source. */
  readonly ownLogin?: RegistryLogin;
  readonly ownCa?: string;
  readonly client?: Pick<RegistryClientOptions, "lookup" | "deadlineMs">;
}

/** Sources behind the policy; one client per call, since credentials depend on the repository. */
export function createImageSources(options: ImageSourcesOptions): ImageSources {
  const ownHost = canonicalRegistry(new URL(options.target.endpoint.url).host);

  function open(reference: ImageReference): RegistryClient {
    const verdict = judgeReference(options.policy, reference);
    if (verdict.kind === "refused") {
      throw new RegistryError("SourceNotAllowed", `${reference.registry} is not allowed: ${verdict.because}`);
    }
    const isOwn = canonicalRegistry(reference.registry) === ownHost;
    const login = isOwn ? options.ownLogin : findLogin(options.logins, reference.registry, reference.repository);
    return createRegistryClient(
      {
        url: isOwn ? options.target.endpoint.url : registryUrl(reference.registry),
        ...(login === undefined ? {} : { login }),
        ...(isOwn && options.ownCa !== undefined ? { ca: options.ownCa } : {}),
      },
      { policy: options.policy, ...options.client },
    );
  }

  async function withSource<R>(image: string, use: (source: Source) => Promise<R>): Promise<R> {
    const reference = parseReference(image);
    const client = open(reference);
    try {
      return await use({ client, repository: reference.repository, reference: manifestReference(reference) });
    } finally {
      await client.close();
    }
  }

  return {
    copyInto: (image, { repository, platform }, signal) =>
      withSource(image, async (source) => {
        const target = { client: options.target, repository };
        const copied = await copyImage({ source, target, platform, signal });
        return { sourceDigest: copied.manifestDigest, config: copied.config, layers: copied.manifest.layers };
      }),

    resolve: (image, platform: Platform, signal) =>
      withSource(image, async (source) => (await resolveImage({ source, platform, signal })).manifestDigest),

    pin(image, digest) {
      const { registry, repository } = parseReference(image);
      return `${registry}/${repository}@${digest}`;
    },
  };
}

interface Source {
  readonly client: RegistryClient;
  readonly repository: string;
  readonly reference: string;
}
