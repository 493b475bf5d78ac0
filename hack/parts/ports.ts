import { randomInt } from "node:crypto";
import { createServer } from "node:net";
import { PartFailed, systemErrorCode } from "./errors.ts";

// Below Linux' range for outgoing connections (32768 and up), so that no client socket takes the port of a part
// that is down for a moment.
const lowest = 20_000;
const highest = 32_767;

/**
 * A TCP port of 127.0.0.1 that nobody listened on a moment ago. It is not reserved: a part that finds it taken
 * after all must be started again with another.
 */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < 200; tries += 1) {
    const port = randomInt(lowest, highest + 1);
    if (await isPortFree(port)) return port;
  }
  throw new PartFailed("ports", `200 random ports between ${lowest} and ${highest} are all taken`);
}

/** Starts a part that chooses ports; when one was free as it was looked at and taken as it was used, again with others. */
export async function onFreePorts<R>(start: () => Promise<R>): Promise<R> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await start();
    } catch (error) {
      const portTaken = error instanceof PartFailed && error.message.includes("address already in use");
      if (!portTaken || tries === 3) throw error;
    }
  }
}

/** Whether nobody listens on `port` of 127.0.0.1 now. */
export async function isPortFree(port: number): Promise<boolean> {
  try {
    await listenOnce(port);
    return true;
  } catch (error) {
    if (systemErrorCode(error) === "EADDRINUSE") return false;
    throw error;
  }
}

function listenOnce(port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen({ port, host: "127.0.0.1", exclusive: true }, () => server.close(() => resolve()));
  });
}
