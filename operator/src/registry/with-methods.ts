import type { RegistryClient } from "./contract.ts";

/** The client with some methods replaced. A class instance cannot be spread, and its methods need their `this`. */
export function withMethods(client: RegistryClient, methods: Partial<RegistryClient>): RegistryClient {
  return {
    endpoint: client.endpoint,
    getManifest: (...call) => client.getManifest(...call),
    putManifest: (...call) => client.putManifest(...call),
    deleteManifest: (...call) => client.deleteManifest(...call),
    listTags: (...call) => client.listTags(...call),
    listRepositories: (...call) => client.listRepositories(...call),
    getBlob: (...call) => client.getBlob(...call),
    streamBlob: (...call) => client.streamBlob(...call),
    verifyBlob: (...call) => client.verifyBlob(...call),
    uploadBlob: (...call) => client.uploadBlob(...call),
    putBlob: (...call) => client.putBlob(...call),
    mountBlob: (...call) => client.mountBlob(...call),
    close: () => client.close(),
    ...methods,
  };
}
