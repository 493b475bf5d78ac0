import { join } from "node:path";

/** Paths and addresses of one control plane, from which every flag follows. */
export interface ControlPlaneLayout {
  directory: string;
  etcdPort: number;
  etcdPeerPort: number;
  apiServerPort: number;
}

/** Common name of the certificate that kube-apiserver presents to aggregated APIs. */
export const requestHeaderName = "front-proxy-client";

/** The files of a control plane, below its directory. */
export const files = {
  ca: "ca.crt",
  caKey: "ca.key",
  apiServerCert: "apiserver.crt",
  apiServerKey: "apiserver.key",
  requestHeaderCa: "front-proxy-ca.crt",
  proxyClientCert: "front-proxy-client.crt",
  proxyClientKey: "front-proxy-client.key",
  serviceAccountPublic: "sa.pub",
  serviceAccountPrivate: "sa.key",
  auditPolicy: "audit-policy.json",
  auditLog: "audit.log",
  adminKubeconfig: "admin.kubeconfig",
  controllerManagerKubeconfig: "controller-manager.kubeconfig",
} as const;

/** etcd: plain HTTP on loopback, nothing synced to disk (a test's cluster need not survive a power cut). */
export function etcdFlags(layout: ControlPlaneLayout): string[] {
  const client = `http://127.0.0.1:${layout.etcdPort}`;
  const peer = `http://127.0.0.1:${layout.etcdPeerPort}`;
  return [
    "--name=local",
    `--data-dir=${join(layout.directory, "etcd")}`,
    `--listen-client-urls=${client}`,
    `--advertise-client-urls=${client}`,
    `--listen-peer-urls=${peer}`,
    `--initial-advertise-peer-urls=${peer}`,
    `--initial-cluster=local=${peer}`,
    "--unsafe-no-fsync",
    "--log-level=warn",
  ];
}

/** kube-apiserver with RBAC, service accounts, aggregation and an audit log of every request's metadata. */
export function apiServerFlags(layout: ControlPlaneLayout): string[] {
  const at = (name: string): string => join(layout.directory, name);
  return [
    `--etcd-servers=http://127.0.0.1:${layout.etcdPort}`,
    // Compaction happens when a test asks for it, not every five minutes.
    "--etcd-compaction-interval=0",
    "--bind-address=127.0.0.1",
    `--secure-port=${layout.apiServerPort}`,
    "--advertise-address=127.0.0.1",
    // A loopback address is refused in Endpoints, and the reconciler would log that for ever.
    "--endpoint-reconciler-type=none",
    `--tls-cert-file=${at(files.apiServerCert)}`,
    `--tls-private-key-file=${at(files.apiServerKey)}`,
    `--client-ca-file=${at(files.ca)}`,
    "--authorization-mode=RBAC",
    "--service-cluster-ip-range=10.233.0.0/16",
    "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
    `--service-account-key-file=${at(files.serviceAccountPublic)}`,
    `--service-account-signing-key-file=${at(files.serviceAccountPrivate)}`,
    `--requestheader-client-ca-file=${at(files.requestHeaderCa)}`,
    `--requestheader-allowed-names=${requestHeaderName}`,
    "--requestheader-username-headers=X-Remote-User",
    "--requestheader-group-headers=X-Remote-Group",
    "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    `--proxy-client-cert-file=${at(files.proxyClientCert)}`,
    `--proxy-client-key-file=${at(files.proxyClientKey)}`,
    // With routing kube-apiserver refuses an APIService behind a Service of type ExternalName, which is how it reaches a
    // gateway that runs beside the cluster.
    "--enable-aggregator-routing=false",
    "--allow-privileged=true",
    `--audit-policy-file=${at(files.auditPolicy)}`,
    `--audit-log-path=${at(files.auditLog)}`,
    "--audit-log-format=json",
    "--audit-log-mode=blocking",
    "--profiling=false",
  ];
}

const controllers = [
  "namespace-controller",
  "garbage-collector-controller",
  "serviceaccount-controller",
  "serviceaccount-token-controller",
  "root-ca-certificate-publisher-controller",
  "clusterrole-aggregation-controller",
];

/** kube-controller-manager: namespace deletion, garbage collection, service accounts and their tokens. */
export function controllerManagerFlags(layout: ControlPlaneLayout): string[] {
  const at = (name: string): string => join(layout.directory, name);
  return [
    `--kubeconfig=${at(files.controllerManagerKubeconfig)}`,
    "--leader-elect=false",
    "--use-service-account-credentials=true",
    `--service-account-private-key-file=${at(files.serviceAccountPrivate)}`,
    `--root-ca-file=${at(files.ca)}`,
    `--cluster-signing-cert-file=${at(files.ca)}`,
    `--cluster-signing-key-file=${at(files.caKey)}`,
    // Nothing asks it for metrics, and a port not opened cannot collide.
    "--secure-port=0",
    // What a cluster of tests needs of the thirty: the rest watches and asks for a third of a core-second a start.
    `--controllers=${controllers.join(",")}`,
    // At the default of 20 a second the default ServiceAccount takes 5 s to appear, with these under 1 s.
    "--kube-api-qps=300",
    "--kube-api-burst=600",
    "--profiling=false",
  ];
}

/** Every request once, when it is answered; a watch also when it begins. */
export const auditPolicy = JSON.stringify({
  apiVersion: "audit.k8s.io/v1",
  kind: "Policy",
  omitStages: ["RequestReceived"],
  rules: [{ level: "Metadata" }],
});
