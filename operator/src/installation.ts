/** The installation id: generated once, kept in a Secret, part of every path and label (DESIGN §11). */
import { randomBytes } from "node:crypto";
import { explainForgotten, INSTALLATION_ID, installationTraces } from "./installation-traces.ts";
import type { KubeClient } from "./kube/contract.ts";
import { isAlreadyExists, isNotFound } from "./kube/errors.ts";
import { SECRETS, type Secret } from "./kube/resource-types.ts";

/** Secret in the operator's namespace. Clusters get cloned, so a cluster's UID would not do. */
export const INSTALLATION_SECRET = "agent-worlds-installation";

/** The Secret is there and holds no usable id: nothing may run under a guessed one. */
export class InstallationUnreadable extends Error {
  override readonly name = "InstallationUnreadable";
}

/** The settings name another id than the Secret: one of the two is of another installation. */
export class InstallationMismatch extends Error {
  override readonly name = "InstallationMismatch";
}

/** The Secret is gone, and objects are there that were made under an id: a new one would make strangers of them. */
export class InstallationForgotten extends Error {
  override readonly name = "InstallationForgotten";
}

/**
 * Reads the id; when there is none, takes the wanted one, or generates one. Two replicas that start at once agree on one.
 * Throws `InstallationMismatch` when another id is wanted than there is, `InstallationForgotten` when there was one before.
 */
export async function installationId(
  kube: KubeClient,
  { namespace, wanted }: { readonly namespace: string; readonly wanted?: string | undefined },
  signal: AbortSignal,
): Promise<string> {
  const id = await readOrMake(kube, { namespace, wanted }, signal);
  if (wanted === undefined || wanted === id) return id;
  throw new InstallationMismatch(
    `the setting installation is ${wanted}, Secret ${namespace}/${INSTALLATION_SECRET} says ${id}: correct the setting, or delete the Secret while no World of it is left`,
  );
}

async function readOrMake(
  kube: KubeClient,
  { namespace, wanted }: { readonly namespace: string; readonly wanted?: string | undefined },
  signal: AbortSignal,
): Promise<string> {
  const secrets = kube.resource<Secret>(SECRETS);
  const ref = { namespace, name: INSTALLATION_SECRET };
  try {
    return idOf(await secrets.get(ref, { signal }));
  } catch (error) {
    if (!isNotFound(error)) throw error;
  }
  const why = explainForgotten(await installationTraces(kube, signal), wanted);
  if (why !== undefined) {
    throw new InstallationForgotten(`Secret ${namespace}/${INSTALLATION_SECRET} does not exist, and ${why}`);
  }
  const id = wanted ?? randomBytes(5).toString("hex");
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
  if (INSTALLATION_ID.test(id)) return id;
  throw new InstallationUnreadable(`Secret ${INSTALLATION_SECRET} holds no installation id`);
}
