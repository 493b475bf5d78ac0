/**
 * Registries and engines have no compare-and-swap: leadership is checked again right before every tag, delete and remove
 * (DESIGN §4.5). The abort at the renew deadline is a timer, and a process that was stopped runs other callbacks first.
 */
import { LeadershipLost } from "../reconciler/lease.ts";
import type { RegistryClient } from "../registry/contract.ts";
import { withMethods } from "../registry/with-methods.ts";
import type { RuntimeDriver } from "../runtime/contract.ts";

/** Asked before an effect that cannot be taken back. */
export type IsLeading = () => boolean;

function demand(isLeading: IsLeading, effect: string): void {
  if (!isLeading()) throw new LeadershipLost(`this process does not lead any more: no ${effect}`);
}

export function guardedRegistry(client: RegistryClient, isLeading: IsLeading): RegistryClient {
  return withMethods(client, {
    async putManifest(repository, manifest, signal) {
      demand(isLeading, "manifest is put");
      return client.putManifest(repository, manifest, signal);
    },
    async deleteManifest(repository, digest, signal) {
      demand(isLeading, "manifest is deleted");
      return client.deleteManifest(repository, digest, signal);
    },
  });
}

export function guardedDriver(driver: RuntimeDriver, isLeading: IsLeading): RuntimeDriver {
  return {
    probe: (...call) => driver.probe(...call),
    identity: (...call) => driver.identity(...call),
    pull: (...call) => driver.pull(...call),
    inspect: (...call) => driver.inspect(...call),
    ownerOf: (...call) => driver.ownerOf(...call),
    exec: (...call) => driver.exec(...call),
    readFile: (...call) => driver.readFile(...call),
    writeFile: (...call) => driver.writeFile(...call),
    sync: (...call) => driver.sync(...call),
    exportTar: (...call) => driver.exportTar(...call),
    thaw: (...call) => driver.thaw(...call),
    list: (...call) => driver.list(...call),
    listCaptures: (...call) => driver.listCaptures(...call),
    close: (...call) => driver.close(...call),
    async create(...call) {
      demand(isLeading, "container is made");
      return driver.create(...call);
    },
    async freeze(...call) {
      demand(isLeading, "container is frozen");
      return driver.freeze(...call);
    },
    async commit(...call) {
      demand(isLeading, "container is committed");
      return driver.commit(...call);
    },
    async push(...call) {
      demand(isLeading, "capture is pushed");
      return driver.push(...call);
    },
    async forgetCommit(...call) {
      demand(isLeading, "capture is dropped");
      return driver.forgetCommit(...call);
    },
    async stop(...call) {
      demand(isLeading, "container is stopped");
      return driver.stop(...call);
    },
    async remove(...call) {
      demand(isLeading, "container is removed");
      return driver.remove(...call);
    },
    async pruneImages(...call) {
      demand(isLeading, "image is removed");
      return driver.pruneImages(...call);
    },
  };
}
