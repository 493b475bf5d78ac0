import { readFile } from "node:fs/promises";
import { send } from "../../../hack/parts/http.ts";

/** One call to an API server with the identity of a kubeconfig that the parts wrote. */
export interface ClusterCall {
  method?: string;
  path: string;
  body?: object;
}

/** The answer; `json` is empty when it is not one JSON object (a watch). */
export interface ClusterAnswer {
  status: number;
  text: string;
  json: Record<string, unknown>;
}

/** Calls the API server. Any status is an answer. */
export async function callCluster(kubeconfigPath: string, call: ClusterCall): Promise<ClusterAnswer> {
  const config: {
    clusters: [{ cluster: { server: string; "certificate-authority-data": string } }];
    users: [{ user: { "client-certificate-data": string; "client-key-data": string } }];
  } = JSON.parse(await readFile(kubeconfigPath, "utf8"));
  const [{ cluster }] = config.clusters;
  const [{ user }] = config.users;
  const decode = (text: string): string => Buffer.from(text, "base64").toString();
  const { status, text } = await send({
    url: `${cluster.server}${call.path}`,
    method: call.method ?? "GET",
    headers: { "content-type": "application/json" },
    ...(call.body === undefined ? {} : { body: JSON.stringify(call.body) }),
    ca: decode(cluster["certificate-authority-data"]),
    cert: decode(user["client-certificate-data"]),
    key: decode(user["client-key-data"]),
    signal: AbortSignal.timeout(30_000),
  });
  return { status, text, json: isOneObject(text) ? JSON.parse(text) : {} };
}

function isOneObject(text: string): boolean {
  return text.startsWith("{") && !text.trimEnd().includes("\n{");
}
