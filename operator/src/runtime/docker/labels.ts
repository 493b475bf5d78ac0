import type { ComputeOwner } from "../contract.ts";

const PREFIX = "agentworlds.dev/";
/** Label that every container of an installation carries. */
export const INSTALLATION_LABEL = `${PREFIX}installation`;
/** Label in a committed image: id of the container it is a commit of. */
export const COMMIT_OF_LABEL = `${PREFIX}commit-of`;
/** Label of the carrier, volume and image of the helper; the value is its version. */
export const HELPER_LABEL = `${PREFIX}helper`;

/** Label of the volume that marks an engine, and of every container made there: the engine's id. */
export const ENGINE_LABEL = `${PREFIX}engine`;

/** Label of every container: the image it was made from, which an engine can forget and a commit does not name. */
export const IMAGE_LABEL = `${PREFIX}image`;

type Labels = Readonly<Record<string, string>>;

export const labelsOf = (owner: ComputeOwner): Labels => ({
  [INSTALLATION_LABEL]: owner.installation,
  [`${PREFIX}namespace`]: owner.namespace,
  [`${PREFIX}sandbox`]: owner.sandbox,
  [`${PREFIX}sandbox-uid`]: owner.sandboxUid,
  [`${PREFIX}boot`]: String(owner.boot),
});

/** The owner, or undefined when a label is missing or the boot is not an ordinal: then it is not one of ours. */
export function ownerOf(labels: Labels): ComputeOwner | undefined {
  const installation = labels[INSTALLATION_LABEL];
  const namespace = labels[`${PREFIX}namespace`];
  const sandbox = labels[`${PREFIX}sandbox`];
  const sandboxUid = labels[`${PREFIX}sandbox-uid`];
  const boot = labels[`${PREFIX}boot`];
  if (installation === undefined || namespace === undefined || sandbox === undefined) return undefined;
  if (sandboxUid === undefined || boot === undefined || !/^[1-9]\d{0,14}$/.test(boot)) return undefined;
  return { installation, namespace, sandbox, sandboxUid, boot: Number(boot) };
}

/** Whether a container was made for exactly this boot of this Sandbox by this installation. */
export function isSameBoot(labels: Labels, owner: ComputeOwner): boolean {
  const found = ownerOf(labels);
  return (
    found?.installation === owner.installation && found.sandboxUid === owner.sandboxUid && found.boot === owner.boot
  );
}
