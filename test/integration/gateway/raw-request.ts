import { readFile } from "node:fs/promises";
import { Agent, request } from "node:https";
import { parse } from "yaml";

/** An HTTP answer as it came. */
export interface RawAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly bytes: Buffer;
  readonly json: Record<string, unknown>;
}

export interface RawRequest {
  readonly method?: string;
  /** Sent on the request line as it stands: no URL parser may clean it. */
  readonly target: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Somebody who can reach a server. */
export interface Caller extends Disposable {
  send(wish: RawRequest): Promise<RawAnswer>;
  /** Announces the body twice as long as it is and leaves the request open; `closed` when either side has ended it. */
  sendHalf(wish: RawRequest & { body: Buffer }): { destroy(): void; readonly closed: Promise<void> };
}

export interface CallerOptions {
  readonly ca: string | Buffer;
  readonly cert?: string | Buffer;
  readonly key?: string | Buffer;
  readonly token?: string;
}

/** Calls a server with these TLS settings and headers, over connections that live as long as the caller. */
export function caller(base: string, options: CallerOptions): Caller {
  const { token, ...tls } = options;
  const agent = new Agent({ keepAlive: true, maxSockets: 64, ...tls });
  const url = new URL(base);
  const authorization = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const address = { agent, host: url.hostname, port: url.port };
  return {
    sendHalf(wish) {
      const outgoing = request({
        ...address,
        method: wish.method ?? "PUT",
        path: wish.target,
        headers: { ...authorization, "content-length": wish.body.length * 2 },
      });
      // The test destroys it: a reset is what it wants.
      outgoing.on("error", () => outgoing.destroy());
      const { promise: closed, resolve } = Promise.withResolvers<void>();
      outgoing.once("close", () => resolve());
      outgoing.write(wish.body);
      return { destroy: () => outgoing.destroy(), closed };
    },
    send(wish) {
      const { promise, resolve, reject } = Promise.withResolvers<RawAnswer>();
      const body = wish.body === undefined || Buffer.isBuffer(wish.body) ? wish.body : JSON.stringify(wish.body);
      const outgoing = request(
        {
          ...address,
          method: wish.method ?? "GET",
          path: wish.target,
          headers: {
            ...authorization,
            ...(body === undefined ? {} : { "content-length": Buffer.byteLength(body as Buffer | string) }),
            ...wish.headers,
          },
        },
        (incoming) => {
          const chunks: Buffer[] = [];
          incoming.on("data", (chunk: Buffer) => chunks.push(chunk));
          incoming.on("error", reject);
          incoming.on("end", () => {
            const bytes = Buffer.concat(chunks);
            const isJson = incoming.headers["content-type"]?.startsWith("application/json") === true;
            const json: Record<string, unknown> = isJson ? JSON.parse(bytes.toString()) : {};
            resolve({ status: incoming.statusCode ?? 0, headers: incoming.headers, bytes, json });
          });
        },
      );
      outgoing.on("error", reject);
      outgoing.end(body);
      return promise;
    },
    [Symbol.dispose]: () => agent.destroy(),
  };
}

/** Calls kube-apiserver as the kubeconfig's user. */
export async function kubeconfigCaller(path: string): Promise<Caller> {
  const config: {
    clusters: { cluster: { server: string; "certificate-authority-data": string } }[];
    users: { user: { "client-certificate-data": string; "client-key-data": string } }[];
  } = parse(await readFile(path, "utf8"));
  const cluster = config.clusters[0]?.cluster;
  const user = config.users[0]?.user;
  if (cluster === undefined || user === undefined) throw new Error(`${path} holds no cluster or no user`);
  const decode = (text: string): Buffer => Buffer.from(text, "base64");
  return caller(cluster.server, {
    ca: decode(cluster["certificate-authority-data"]),
    cert: decode(user["client-certificate-data"]),
    key: decode(user["client-key-data"]),
  });
}
