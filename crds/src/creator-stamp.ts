/**
 * The stamp that names an object's creator (DESIGN §11), said twice: in CEL for the API server's policies, and as a function
 * for the webhook that stamps where the API server cannot. Both must give the same bytes: what the webhook writes, the
 * policies check (test/integration/gateway/webhook.test.ts compares them on a real API server).
 */
import { type CausedBy, clip, LIMITS } from "./object.ts";
import type { SchemaNode } from "./openapi.ts";

/** JSON `{user, agent?, conversation?}`: who created a World or Sandbox, as authenticated (DESIGN §11). */
export const CREATED_BY = "agentworlds.dev/created-by";

/** What carries the stamp. */
export const STAMPED_RESOURCES = ["worlds", "sandboxes"] as const;

/** Name of the mutating policy, of its binding, and of the webhook in its place. */
export const STAMP_NAME = "created-by.agentworlds.dev";

const SERVICE_ACCOUNT = "system:serviceaccount:";
/** `system:serviceaccount:<namespace>:<name>` without its first word is the agent's id. */
const FIRST_WORD = "system:".length;

/** The agent that a user counts as who states none: a ServiceAccount is one, a person is not. */
const agentOf = (user: string): string | undefined =>
  user.startsWith(SERVICE_ACCOUNT) ? user.slice(FIRST_WORD) : undefined;

/** What is kept of an authenticated user who asked for something; nothing but the name is known of the request's sender. */
export function causedByUser(user: string): CausedBy {
  const agent = agentOf(user);
  return { user: clip(user, LIMITS.user), ...(agent === undefined ? {} : { agent: clip(agent, LIMITS.agent) }) };
}

/** The text of the stamp of an object that `user` creates. `object` is as the client sent it: no schema has seen it yet. */
export function creatorStamp(user: string, object: unknown): string {
  const spec = member(object, "spec");
  const stated = member(spec, "agent");
  const id = member(stated, "id");
  const talk = member(stated, "conversation");
  const agent = typeof id === "string" ? id : (agentOf(user) ?? "");
  const conversation = typeof talk === "string" ? talk : "";
  return [
    `{"user":${jsonText(user)}`,
    agent === "" ? "" : `,"agent":${jsonText(agent)}`,
    conversation === "" ? "" : `,"conversation":${jsonText(conversation)}`,
    "}",
  ].join("");
}

/** An own member of a JSON object; undefined of anything else. */
function member(value: unknown, name: string): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  return Object.getOwnPropertyDescriptor(value, name)?.value;
}

/** Not JSON.stringify: that writes control characters as escapes, which CEL cannot. */
function jsonText(text: string): string {
  const escaped = Array.from(text, (char) =>
    char === '"' || char === "\\" ? `\\${char}` : char < " " ? "\ufffd" : char,
  );
  return `"${escaped.join("")}"`;
}

/**
 * A JSON string of any text. CEL has no JSON encoder: quotes and backslashes are escaped, control characters (legal in no
 * user name, but nobody checks) become U+FFFD, so that a name can never break out of its string.
 */
const jsonString = (expression: string): string =>
  `'"' + ${expression}.split('').map(c, c in ['"', '\\\\'] ? '\\\\' + c : c < ' ' ? '\\ufffd' : c).join('') + '"'`;

/** A member of spec.agent when it is text. The schema has not been checked yet when mutation runs. */
const agentMember = (name: string, otherwise: string): string =>
  `has(variables.agentFields.${name}) && type(variables.agentFields.${name}) == string ? variables.agentFields.${name} : ${otherwise}`;

/** The stamp of whoever sends the request, as `variables.creator` of a policy. */
export const CREATOR_VARIABLES: readonly SchemaNode[] = [
  { name: "user", expression: "request.userInfo.username" },
  {
    name: "agentFields",
    expression:
      "has(object.spec) && type(object.spec) == map && has(object.spec.agent) && type(object.spec.agent) == map ? object.spec.agent : {}",
  },
  {
    name: "serviceAccount",
    // system:serviceaccount:<namespace>:<name> without its first word.
    expression: `variables.user.startsWith('${SERVICE_ACCOUNT}') ? variables.user.substring(${FIRST_WORD}) : ''`,
  },
  { name: "agent", expression: agentMember("id", "variables.serviceAccount") },
  { name: "conversation", expression: agentMember("conversation", "''") },
  {
    name: "creator",
    expression: [
      `'{"user":' + ${jsonString("variables.user")}`,
      `+ (variables.agent == '' ? '' : ',"agent":' + ${jsonString("variables.agent")})`,
      `+ (variables.conversation == '' ? '' : ',"conversation":' + ${jsonString("variables.conversation")}) + '}'`,
    ].join("\n"),
  },
];
