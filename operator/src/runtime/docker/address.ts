/** Client certificate and CA of an engine that listens on TLS. PEM. */
export interface EngineTls {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

/** Where an engine listens. */
export type EngineAddress =
  | { readonly kind: "unix"; readonly path: string }
  | { readonly kind: "tcp"; readonly host: string; readonly port: number; readonly tls?: EngineTls };

const DEFAULT_PORT = 2375;
const DEFAULT_TLS_PORT = 2376;

/** Reads the `DOCKER_HOST` form: `unix:///path`, `tcp://host[:port]`, `https://host[:port]`. Throws `TypeError`. */
export function parseEngineAddress(text: string, tls?: EngineTls): EngineAddress {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol === "unix:" && url.pathname.length > 1)
    return { kind: "unix", path: decodeURIComponent(url.pathname) };
  const isTcp = url !== undefined && ["tcp:", "http:", "https:"].includes(url.protocol);
  if (!isTcp || url.hostname === "") throw new TypeError(`not an engine address: ${JSON.stringify(text)}`);
  if (url.username !== "" || url.password !== "") throw new TypeError("an engine address must not hold credentials");
  if (url.protocol === "https:" && tls === undefined)
    throw new TypeError("an https engine address needs certificates (tls.crt, tls.key, ca.crt)");
  // Not url.port: it is empty where the port is the scheme's default.
  const written = /:(\d+)\/?$/.exec(text)?.[1];
  const port = written === undefined ? (tls === undefined ? DEFAULT_PORT : DEFAULT_TLS_PORT) : Number(written);
  return { kind: "tcp", host: url.hostname, port, ...(tls === undefined ? {} : { tls }) };
}
