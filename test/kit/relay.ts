import { once } from "node:events";
import { createConnection, createServer, type Server, type Socket } from "node:net";

/** A TCP port that leads to a unix socket, and can be taken away: a host that is unreachable and comes back. */
export interface Relay extends AsyncDisposable {
  /** `tcp://127.0.0.1:PORT` */
  readonly endpoint: string;
  /** Cuts every connection and refuses new ones. */
  down(): Promise<void>;
  /** Listens again on the same port. */
  up(): Promise<void>;
}

/** Starts a relay to a DOCKER_HOST of the form `unix://…`. */
export async function startRelay(dockerHost: string): Promise<Relay> {
  const path = /^unix:\/\/(.+)$/.exec(dockerHost)?.[1];
  if (path === undefined) throw new TypeError(`${dockerHost} is no unix socket`);
  const open = new Set<Socket>();
  let server: Server | undefined;
  let port = 0;

  const join = (near: Socket): void => {
    const far = createConnection({ path });
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      open.add(from);
      from.pipe(to);
      // The other end is told by the destroy; broken connections are what this relay is for.
      from.on("error", () => to.destroy());
      from.on("close", () => {
        open.delete(from);
        to.destroy();
      });
    }
  };
  const up = async (): Promise<void> => {
    const listening = createServer({ allowHalfOpen: true }, join);
    listening.listen(port, "127.0.0.1");
    await once(listening, "listening");
    const address = listening.address();
    if (address !== null && typeof address === "object") port = address.port;
    server = listening;
  };
  const down = async (): Promise<void> => {
    const closing = server;
    server = undefined;
    for (const socket of open) socket.destroy();
    if (closing === undefined) return;
    closing.close();
    await once(closing, "close");
  };
  await up();
  return { endpoint: `tcp://127.0.0.1:${port}`, up, down, [Symbol.asyncDispose]: down };
}
