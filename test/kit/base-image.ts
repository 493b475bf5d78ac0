import {
  type BaseImageName,
  type BaseImageTarget,
  baseImageReference,
  loadBaseImage,
  unloadBaseImage,
} from "../../hack/parts/base-images.ts";
import type { RegistryAddress } from "../../hack/parts/registry.ts";
import { sharedParts } from "./shared.ts";

/** A base image in an engine and a registry. */
export interface BaseImage extends AsyncDisposable {
  readonly name: BaseImageName;
  /** `127.0.0.1:5055/base/busybox:latest` */
  readonly reference: string;
}

/** Where the image is wanted, and how long that may take. */
export interface BaseImageWish {
  engine: { readonly dockerHost: string };
  registry: RegistryAddress;
  /** Default 20 minutes: the workbench is made by debootstrap the first time. */
  signal?: AbortSignal;
}

/**
 * A base image in that engine and that registry; in the shared pair it is there already, elsewhere it is built, imported
 * and pushed. Dispose removes its tag from the engine, unless it was there already or a running container uses it.
 */
export async function baseImage(name: BaseImageName, wish: BaseImageWish): Promise<BaseImage> {
  const shared = await sharedParts();
  const isShared = shared?.engine.dockerHost === wish.engine.dockerHost && shared.registry.host === wish.registry.host;
  if (isShared && shared.baseImages[name] !== undefined) {
    return {
      name,
      reference: baseImageReference(name, wish.registry),
      async [Symbol.asyncDispose]() {
        // Other tests use it too.
      },
    };
  }
  const target: BaseImageTarget = {
    dockerHost: wish.engine.dockerHost,
    registry: wish.registry,
    signal: wish.signal ?? AbortSignal.timeout(20 * 60_000),
  };
  const reference = await loadBaseImage(name, target);
  return {
    name,
    reference,
    [Symbol.asyncDispose]: () => unloadBaseImage(name, { ...target, signal: AbortSignal.timeout(30_000) }),
  };
}
