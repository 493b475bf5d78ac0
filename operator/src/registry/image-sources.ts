import type { Platform } from "@agentworlds/crds";
import { createRegistryClient, type RegistryClientOptions } from "./client.ts";
import type { RegistryClient, RegistryEndpoint } from "./contract.ts";
import { copyImage, resolveImage } from "./copy.ts";
import { type DockerConfig, findLogin } from "./docker-config.ts";
import { isRegistryError, RegistryError } from "./errors.ts";
import { canonicalRegistry, type ImageReference, manifestReference, parseReference, registryUrl } from "./reference.ts";
import { judgeReference, type SourcePolicy } from "./source-policy.ts";
import { type ImageSources, TargetRegistryError } from "./sources.ts";
import { withMethods } from "./with-methods.ts";

export interface ImageSourcesOptions {
  /** The installation's registry, which copies go to. Its endpoint is also read when an image of its own is the source. */
  readonly target: RegistryClient;
  /** Logins of source registries, as fresh as their Secret. */
  readonly logins: (signal: AbortSignal) => Promise<DockerConfig>;
  readonly policy: SourcePolicy;
  readonly client?: Pick<RegistryClientOptions, "lookup" | "deadlineMs">;
}

/** Sources behind the policy; one client per call, since credentials depend on the repository. */
export function createImageSources(options: ImageSourcesOptions): ImageSources {
  const ownHost = canonicalRegistry(new URL(options.target.endpoint.url).host);

  async function endpointOf(reference: ImageReference, signal: AbortSignal): Promise<RegistryEndpoint> {
    const login = findLogin(await options.logins(signal), reference.registry, reference.repository);
    return { url: registryUrl(reference.registry), ...(login === undefined ? {} : { login }) };
  }

  /** Judged first: a registry that is not allowed is told no credentials. */
  async function allowed(reference: ImageReference, signal: AbortSignal) {
    const verdict = judgeReference(options.policy, reference);
    if (verdict.kind === "refused") {
      throw new RegistryError("SourceNotAllowed", `${reference.registry} is not allowed: ${verdict.because}`);
    }
    const isOwn = canonicalRegistry(reference.registry) === ownHost;
    return { isOwn, endpoint: isOwn ? options.target.endpoint : await endpointOf(reference, signal) };
  }

  async function open(reference: ImageReference, signal: AbortSignal): Promise<Source> {
    const { isOwn, endpoint } = await allowed(reference, signal);
    const client = createRegistryClient(endpoint, { policy: options.policy, ...options.client });
    return { client, isOwn, repository: reference.repository, reference: manifestReference(reference) };
  }

  async function withSource<R>(image: string, signal: AbortSignal, use: (source: Source) => Promise<R>): Promise<R> {
    const source = await open(parseReference(image), signal);
    try {
      return await use(source);
    } catch (error) {
      // Our own credentials are read from a Secret that can be rotated: that heals without another image.
      if (source.isOwn && isRegistryError(error, "Unauthorized")) throw new TargetRegistryError(error);
      throw error;
    } finally {
      await source.client.close();
    }
  }

  return {
    copyInto: (image, { repository, platform }, signal) =>
      withSource(image, signal, async (source) => {
        const ofSource = new WeakSet<object>();
        const copied = await copyImage({
          source: { ...source, client: remembering(source.client, ofSource) },
          target: { client: blaming(options.target, ofSource), repository },
          platform,
          signal,
        });
        return { sourceDigest: copied.manifestDigest, config: copied.config, layers: copied.manifest.layers };
      }),

    resolve: (image, platform: Platform, signal) =>
      withSource(image, signal, async (source) => (await resolveImage({ source, platform, signal })).manifestDigest),

    login: async (image, signal) => (await allowed(parseReference(image), signal)).endpoint.login,

    pin(image, digest) {
      const { registry, repository } = parseReference(image);
      return `${registry}/${repository}@${digest}`;
    },
  };
}

interface Source {
  readonly client: RegistryClient;
  /** The installation's own registry, outside its prefix. */
  readonly isOwn: boolean;
  readonly repository: string;
  readonly reference: string;
}

/** Remembers what the source's streams throw: it comes out of the upload that reads them. */
function remembering(client: RegistryClient, thrown: WeakSet<object>): RegistryClient {
  return withMethods(client, {
    async *streamBlob(...call) {
      try {
        yield* client.streamBlob(...call);
      } catch (error) {
        if (error instanceof RegistryError) thrown.add(error);
        throw error;
      }
    },
  });
}

/** What the target says is told apart from what the source said. */
function blaming(client: RegistryClient, ofSource: WeakSet<object>): RegistryClient {
  const blame = async <R>(call: Promise<R>): Promise<R> => {
    try {
      return await call;
    } catch (error) {
      if (error instanceof RegistryError && !ofSource.has(error)) throw new TargetRegistryError(error);
      throw error;
    }
  };
  return withMethods(client, {
    verifyBlob: (...call) => blame(client.verifyBlob(...call)),
    mountBlob: (...call) => blame(client.mountBlob(...call)),
    uploadBlob: (...call) => blame(client.uploadBlob(...call)),
    putBlob: (...call) => blame(client.putBlob(...call)),
  });
}
