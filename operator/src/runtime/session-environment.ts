import type { Sandbox } from "@agentworlds/crds";
import type { ResourceClient } from "../kube/contract.ts";
import { isNotFound } from "../kube/errors.ts";
import type { Secret } from "../kube/resource-types.ts";

const READ_DEADLINE_MS = 10_000;

/** A Secret that `spec.env` names, or a key of it, does not exist. */
export class EnvironmentIncomplete extends Error {
  override readonly name = "EnvironmentIncomplete";
  readonly code: "SecretNotFound" | "SecretKeyNotFound";
  readonly remediation: string;
  constructor(code: EnvironmentIncomplete["code"], details: { message: string; remediation: string }) {
    super(details.message);
    this.code = code;
    this.remediation = details.remediation;
  }
}

/**
 * The session's environment from `spec.env`, read anew for each command: it goes to the command alone, never into the
 * container's config, which every commit would carry into a version (DESIGN §4.8). Throws `EnvironmentIncomplete`.
 */
export async function sessionEnvironment(
  sandbox: Sandbox,
  secrets: ResourceClient<Secret>,
  signal: AbortSignal,
): Promise<Record<string, string>> {
  const variables = sandbox.spec.env ?? [];
  const names = new Set(variables.flatMap(({ secretKeyRef }) => secretKeyRef?.name ?? []));
  const byName = new Map<string, Secret>();
  await Promise.all(
    [...names].map(async (name) => byName.set(name, await readSecret({ sandbox, name, secrets, signal }))),
  );
  const environment: Record<string, string> = {};
  for (const { name, value, secretKeyRef } of variables) {
    if (value !== undefined) environment[name] = value;
    if (secretKeyRef !== undefined) environment[name] = referredValue(byName.get(secretKeyRef.name), secretKeyRef);
  }
  return environment;
}

async function readSecret(read: {
  sandbox: Sandbox;
  name: string;
  secrets: ResourceClient<Secret>;
  signal: AbortSignal;
}): Promise<Secret> {
  const { sandbox, name, secrets, signal } = read;
  const { namespace } = sandbox.metadata;
  try {
    return await secrets.get(
      { name, ...(namespace === undefined ? {} : { namespace }) },
      { signal, deadlineMs: READ_DEADLINE_MS },
    );
  } catch (error) {
    if (!isNotFound(error)) throw error;
    throw new EnvironmentIncomplete("SecretNotFound", {
      message: `Secret ${name}, named in spec.env, does not exist`,
      remediation: "create it in the Sandbox's namespace, or take the variable out of spec.env",
    });
  }
}

function referredValue(secret: Secret | undefined, ref: { name: string; key: string }): string {
  const value = secret?.data?.[ref.key];
  if (value !== undefined) return Buffer.from(value, "base64").toString("utf8");
  throw new EnvironmentIncomplete("SecretKeyNotFound", {
    message: `Secret ${ref.name}, named in spec.env, has no key ${ref.key}`,
    remediation: "add the key to the Secret, or name another one in spec.env",
  });
}
