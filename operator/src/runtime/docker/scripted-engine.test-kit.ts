import { createServer, type Socket } from "node:net";
import { join } from "node:path";
import { partDirectory } from "../../../../hack/parts/directory.ts";

/** For tests: an engine that answers every call but `_ping` with scripted bytes. */
export interface ScriptedEngine extends AsyncDisposable {
  readonly path: string;
}

/** What to do with a request: write bytes, end or destroy the connection, or nothing for ever. */
export type Script = (request: { line: string; body: string }, socket: Socket) => void;

const PONG = "HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Length: 2\r\n\r\nOK";

export async function scriptedEngine(script: Script, pong = PONG): Promise<ScriptedEngine> {
  // A test that is killed leaves its folder behind: the next one removes it.
  const directory = await partDirectory({ kind: "scripted-engine" });
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    // A client that gives up resets the connection; that is what these tests are about.
    socket.on("error", () => socket.destroy());
    onRequests(socket, (request) => {
      if (request.line.includes("/_ping")) socket.write(pong);
      else script(request, socket);
    });
  });
  const path = join(directory.path, "engine.sock");
  await new Promise<void>((resolve) => server.listen(path, resolve));
  return {
    path,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
      await directory[Symbol.asyncDispose]();
    },
  };
}

function onRequests(socket: Socket, each: (request: { line: string; body: string }) => void): void {
  let text = "";
  socket.on("data", (chunk) => {
    text += chunk.toString("latin1");
    for (;;) {
      const end = text.indexOf("\r\n\r\n");
      if (end < 0) return;
      const length = Number(/content-length: (\d+)/i.exec(text.slice(0, end))?.[1] ?? 0);
      if (text.length < end + 4 + length) return;
      const request = { line: text.slice(0, text.indexOf("\r\n")), body: text.slice(end + 4, end + 4 + length) };
      text = text.slice(end + 4 + length);
      each(request);
    }
  });
}

export const httpAnswer = (status: number, body: string): string =>
  `HTTP/1.1 ${status} X\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
