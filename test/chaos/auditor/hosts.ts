/** What the engine and the API server hold after everything has settled, by their own HTTP. */
import { askForJson, at, listAt, type Question, textAt } from "./http.ts";

export interface ClusterAccess {
  /** `https://127.0.0.1:6443` */
  readonly url: string;
  readonly tls: NonNullable<Question["tls"]>;
}

/** A container of an installation, with what its labels say. */
export interface FoundContainer {
  /** `aw-<uid>-<boot>` */
  readonly name: string;
  readonly sandbox: string;
  readonly boot: number;
}

const INSTALLATION = "agentworlds.dev/installation";

/** Every container of the installation, in any state. */
export async function containersOn(socketPath: string, installation: string): Promise<FoundContainer[]> {
  const filters = encodeURIComponent(JSON.stringify({ label: [`${INSTALLATION}=${installation}`] }));
  const listed = await askForJson({ url: `http://engine/containers/json?all=1&filters=${filters}`, socketPath });
  if (!Array.isArray(listed)) throw new Error("the engine's list of containers is no list");
  return listed.flatMap((container: unknown) => {
    const sandbox = textAt(container, "Labels", "agentworlds.dev/sandbox-uid");
    const [name] = listAt(container, "Names");
    // The carrier of the helper belongs to the host, not to a session.
    if (sandbox === undefined) return [];
    const boot = Number(textAt(container, "Labels", "agentworlds.dev/boot"));
    return [{ name: String(name).replace(/^\//, ""), sandbox, boot }];
  });
}

/** Names of every local image of captures. */
export async function capturesOn(socketPath: string): Promise<string[]> {
  const listed = await askForJson({ url: "http://engine/images/json", socketPath });
  if (!Array.isArray(listed)) throw new Error("the engine's list of images is no list");
  return listed
    .flatMap((image: unknown) => listAt(image, "RepoTags"))
    .filter((name): name is string => typeof name === "string" && name.startsWith("agentworlds/capture:"));
}

/** The objects of the product. */
export interface ClusterFindings {
  /** Ids of containers that some object accounts for. */
  readonly accounted: ReadonlySet<string>;
  /** `Sandbox chaos/w1-s1` for each object whose deletion does not end, with its finalizers. */
  readonly deleting: readonly string[];
}

const KINDS = ["sandboxes", "worlds", "runtimes"] as const;

export async function lookAtCluster(cluster: ClusterAccess): Promise<ClusterFindings> {
  const accounted = new Set<string>();
  const deleting: string[] = [];
  for (const kind of KINDS) {
    const list = await askForJson({ url: `${cluster.url}/apis/agentworlds.dev/v1alpha1/${kind}`, tls: cluster.tls });
    for (const object of listAt(list, "items")) {
      const compute = textAt(object, "status", "compute", "id");
      if (compute !== undefined) accounted.add(compute);
      for (const rescue of listAt(object, "status", "rescues")) {
        const kept = textAt(rescue, "computeId");
        if (kept !== undefined) accounted.add(kept);
      }
      if (at(object, "metadata", "deletionTimestamp") === undefined) continue;
      const finalizers = listAt(object, "metadata", "finalizers").join(", ");
      const name = `${textAt(object, "metadata", "namespace") ?? ""}/${textAt(object, "metadata", "name")}`;
      deleting.push(`${kind} ${name} [${finalizers}]`);
    }
  }
  return { accounted, deleting };
}

/** Namespaces whose deletion does not end. */
export async function terminatingNamespaces(cluster: ClusterAccess): Promise<string[]> {
  const list = await askForJson({ url: `${cluster.url}/api/v1/namespaces`, tls: cluster.tls });
  return listAt(list, "items").flatMap((object) =>
    at(object, "metadata", "deletionTimestamp") === undefined ? [] : [textAt(object, "metadata", "name") ?? ""],
  );
}
