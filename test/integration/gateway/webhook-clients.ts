import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type Authority, createAuthority, issue } from "../../../hack/parts/certificates.ts";
import { kubeconfig } from "../../../hack/parts/kubeconfig.ts";
import { freePort } from "../../../hack/parts/ports.ts";
import { GATEWAY_SERVICE } from "../../../operator/src/gateway/apiservice.ts";
import { SYSTEM } from "./fixture.ts";

/** A port at which kube-apiserver shows webhooks a client certificate, signed by this authority. */
export interface KnownPort {
  readonly port: number;
  readonly authority: Authority;
  readonly flags: readonly string[];
}

/** Takes a free port, and writes what the flags name into `directory`. */
export async function knownPort(directory: string): Promise<KnownPort> {
  const port = await freePort();
  const authority = createAuthority("webhook-clients");
  const certified = issue(authority, { commonName: "kube-apiserver", usage: "client" });
  const user = `${GATEWAY_SERVICE}.${SYSTEM}.svc:${port}`;
  const clients = join(directory, "webhook-clients.kubeconfig");
  const known = JSON.parse(kubeconfig({ server: "https://unused", ca: authority.certPem, user, ...certified }));
  // The user of a current context would be shown to every webhook.
  await writeFile(clients, JSON.stringify({ ...known, "current-context": "" }));
  const admission = join(directory, "admission.json");
  const apiVersion = "apiserver.config.k8s.io/v1";
  const configuration = { apiVersion, kind: "WebhookAdmissionConfiguration", kubeConfigFile: clients };
  const plugins = [{ name: "MutatingAdmissionWebhook", configuration }];
  await writeFile(admission, JSON.stringify({ apiVersion, kind: "AdmissionConfiguration", plugins }));
  return { port, authority, flags: [`--admission-control-config-file=${admission}`] };
}
