import { isRuntimeError, RuntimeError } from "../runtime/errors.ts";
import type { DriverLookup } from "./call.ts";

/**
 * Who asks for a session does not know the container host's address, nor which call of its API failed: a host that does not
 * answer is told by its name. The words of the connection stay with the error, for the log.
 */
export function namedHosts(drivers: DriverLookup): DriverLookup {
  return async (runtime, host, signal) => {
    const named = async <R>(call: () => Promise<R>): Promise<R> => {
      try {
        return await call();
      } catch (error) {
        if (!isRuntimeError(error, "HostUnreachable")) throw error;
        const message = `container host ${host} of Runtime ${runtime} does not answer this gateway`;
        throw new RuntimeError("HostUnreachable", message, { cause: error });
      }
    };
    const driver = await named(() => drivers(runtime, host, signal));
    return {
      ownerOf: (...call) => named(() => driver.ownerOf(...call)),
      exec: (...call) => named(() => driver.exec(...call)),
      readFile: (...call) => named(() => driver.readFile(...call)),
      writeFile: (...call) => named(() => driver.writeFile(...call)),
      exportTar: (...call) => named(() => driver.exportTar(...call)),
    };
  };
}
