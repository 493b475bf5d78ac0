import { creatorStamp } from "@agentworlds/crds";

/** Somebody who creates an object, and what the object claims and states. */
export interface Creator {
  readonly what: string;
  /** The authenticated user, or the one whom `as` names. */
  readonly user: string;
  readonly groups?: readonly string[];
  /** Impersonated by the authenticated user. */
  readonly as?: string;
  readonly agent?: { readonly id: string; readonly conversation?: string };
  readonly annotations?: Readonly<Record<string, string>>;
}

const FORGED = { "agentworlds.dev/created-by": '{"user":"somebody-else"}' };

/** Of policy and webhook the same stamp is demanded for each of them. */
export const CREATORS: readonly Creator[] = [
  { what: "a person", user: "alice" },
  { what: "a member of groups", user: "bob", groups: ["developers", "system:lab"] },
  { what: "a ServiceAccount", user: "system:serviceaccount:ci:runner" },
  { what: "a ServiceAccount that states its agent", user: "system:serviceaccount:ci:runner", agent: { id: "claude" } },
  { what: "a person's agent", user: "alice", agent: { id: "claude", conversation: 'c-1"\\' } },
  { what: "somebody impersonated", user: "impersonator", as: "carol" },
  { what: "an impersonated ServiceAccount", user: "impersonator", as: "system:serviceaccount:ci:other" },
  { what: "a name that would break out of its string", user: 'm"allory\\","agent":"x' },
  { what: "a name with control characters", user: "tab\tbed" },
  { what: "a name beyond ASCII", user: "zoë 🐝 <&>\u2028" },
  { what: "somebody who forges", user: "alice", annotations: FORGED },
  { what: "somebody who forges beside other annotations", user: "bob", annotations: { other: "kept", ...FORGED } },
];

/** What every one of them must be stamped with. */
export const stampOf = ({ user, as, agent }: Creator): string =>
  creatorStamp(as ?? user, { spec: agent === undefined ? {} : { agent } });

/** The Sandbox that they create, as JSON for kubectl. */
export const sandboxOf = ({ agent, annotations }: Creator, at: { name: string; namespace: string }): string =>
  JSON.stringify({
    apiVersion: "agentworlds.dev/v1alpha1",
    kind: "Sandbox",
    metadata: { ...at, ...(annotations === undefined ? {} : { annotations }) },
    spec: { image: "busybox", ...(agent === undefined ? {} : { agent }) },
  });
