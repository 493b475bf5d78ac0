/** What a kubeconfig of the local control plane holds. */
export interface KubeconfigFields {
  server: string;
  /** PEM. */
  ca: string;
  user: string;
  /** Client certificate and its key, PEM. */
  certPem: string;
  keyPem: string;
  namespace?: string;
}

/** A kubeconfig with everything embedded. JSON, which is YAML: every client reads it. */
export function kubeconfig(fields: KubeconfigFields): string {
  const base64 = (text: string): string => Buffer.from(text).toString("base64");
  return JSON.stringify(
    {
      apiVersion: "v1",
      kind: "Config",
      clusters: [
        { name: "local", cluster: { server: fields.server, "certificate-authority-data": base64(fields.ca) } },
      ],
      users: [
        {
          name: fields.user,
          user: { "client-certificate-data": base64(fields.certPem), "client-key-data": base64(fields.keyPem) },
        },
      ],
      contexts: [
        {
          name: "local",
          context: { cluster: "local", user: fields.user, namespace: fields.namespace ?? "default" },
        },
      ],
      "current-context": "local",
    },
    undefined,
    2,
  );
}
