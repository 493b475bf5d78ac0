/** Where a server is and who calls it, as configured. Files are named, not read: they rotate. */

/** PEM text, or the file it is in. */
export type Material =
  | { readonly kind: "Inline"; readonly pem: string }
  | { readonly kind: "File"; readonly path: string };

/** How a server is reached and proven. */
export interface ServerAccess {
  /** Without a trailing slash; may have a path. */
  readonly server: string;
  /** Absent: the machine's authorities. */
  readonly ca?: Material | undefined;
  readonly insecureSkipVerify: boolean;
  /** Name in the server's certificate, where it is not the host's. */
  readonly serverName?: string | undefined;
  readonly proxyUrl?: string | undefined;
}

/** A program that prints an ExecCredential. */
export interface CredentialPlugin {
  readonly apiVersion: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Said when the program is missing. */
  readonly installHint?: string | undefined;
  /** Present when the program wants to know the cluster. */
  readonly cluster?: Readonly<Record<string, unknown>> | undefined;
}

/** How a caller proves who it is. */
export interface UserAccess {
  readonly token?: string | undefined;
  /** Wins over `token`; read at each call. */
  readonly tokenFile?: string | undefined;
  readonly certificate?: Material | undefined;
  readonly key?: Material | undefined;
  readonly plugin?: CredentialPlugin | undefined;
}

/** A server, a caller, and the namespace of calls that name none. */
export interface Access {
  readonly server: ServerAccess;
  readonly user: UserAccess;
  readonly namespace: string;
}
