/** The installation id: generated once, kept in a Secret, part of every path and label (DESIGN §11). */
import { randomBytes } from "node:crypto";
import type { KubeClient } from "./kube/contract.ts";
import { isAlreadyExists, isNotFound } from "./kube/errors.ts";
import { SECRETS, type Secret } from "./kube/resource-types.ts";

/** Secret in the operator's namespace. Clusters get cloned, so a cluster's UID would not do. */
export const INSTALLATION_SECRET = "agent-worlds-installation";

/** The Secret is there and holds no usable id: nothing may run under a guessed one. */
export class InstallationUnreadable extends Error {
  override readonly name = "InstallationUnreadable";
}

/** Reads the id, or generates it when there is none; two replicas that start at once agree on one. */
export async function installationId(kube: KubeClient, namespace: string, signal: AbortSignal): Promise<string> {
  const secrets = kube.resource<Secret>(SECRETS);
  const ref = { namespace, name: INSTALLATION_SECRET };
  try {
    return idOf(await secrets.get(ref, { signal }));
  } catch (error) {
    if (!isNotFound(error)) throw error;
  }
  const id = randomBytes(5).toString("hex");
  try {
    const created = await secrets.create(
      {
        apiVersion: "v1",
        kind: "Secret",
        metadata: { name: INSTALLATION_SECRET, namespace },
        type: "Opaque",
        data: { id: Buffer.from(id).toString("base64") },
      },
      { namespace, signal },
    );
    return idOf(created);
  } catch (error) {
    if (!isAlreadyExists(error)) throw error;
    return idOf(await secrets.get(ref, { signal }));
  }
}

function idOf(secret: Secret): string {
  const id = Buffer.from(secret.data?.["id"] ?? "", "base64").toString("utf8");
  if (/^[a-z0-9]{4,32}$/.test(id)) return id;
  throw new InstallationUnreadable(`Secret ${INSTALLATION_SECRET} holds no installation id`);
}
