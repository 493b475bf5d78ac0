import { GROUP, VERSION } from "./object.ts";
import type { SchemaNode } from "./openapi.ts";
import { celString } from "./schema.ts";

/** JSON `{user, agent?, conversation?}`: who created a World or Sandbox, as authenticated (DESIGN §11). */
export const CREATED_BY = "agentworlds.dev/created-by";

/** Most Secrets that one Sandbox may take variables from: each costs the API server one authorisation. */
export const ENVIRONMENT_SECRETS_MAX = 16;

/** Digest of the newest version in the registry, which is to become head although `World.status` is older (docs/adr/0012). */
export const ADOPT_HEAD = "agentworlds.dev/adopt-head";

const ADMISSION = "admissionregistration.k8s.io/v1";

/**
 * The policies that the API server carries out itself, so that no webhook can be down. They need 1.36 for the stamp
 * (MutatingAdmissionPolicy v1; docs/adr/0008-creator-stamp.md), 1.30 for the others. All of them run before a request reaches the store, whoever sends it.
 */
export function admissionPolicies(): SchemaNode[] {
  return [
    ...stampPolicy(),
    ...stampIsTruePolicy(),
    ...stampIsKeptPolicy(),
    ...adoptionPolicy(),
    ...secretsPolicy(),
    ...usedHostsPolicy(),
  ];
}

const resources = (operations: readonly string[], plurals: readonly string[]): SchemaNode => ({
  resourceRules: [{ apiGroups: [GROUP], apiVersions: [VERSION], operations, resources: plurals }],
});

const binding = (kind: string, policyName: string, rest: SchemaNode = {}): SchemaNode => ({
  apiVersion: ADMISSION,
  kind,
  metadata: metadata(policyName),
  spec: { policyName, ...rest },
});

const metadata = (name: string): SchemaNode => ({ name, labels: { "app.kubernetes.io/part-of": "agent-worlds" } });

const ANNOTATION = celString(CREATED_BY);
const stampOf = (object: string): string => `${object}.metadata.?annotations[?${ANNOTATION}]`;
const STAMP_CHANGES = `${stampOf("object")} != ${stampOf("oldObject")}`;

/**
 * A JSON string of any text. CEL has no JSON encoder: quotes and backslashes are escaped, control characters (legal in no
 * user name, but nobody checks) become U+FFFD, so that a name can never break out of its string.
 */
const jsonString = (expression: string): string =>
  `'"' + ${expression}.split('').map(c, c in ['"', '\\\\'] ? '\\\\' + c : c < ' ' ? '\\ufffd' : c).join('') + '"'`;

/** A member of spec.agent when it is text. The schema has not been checked yet when mutation runs. */
const agentMember = (member: string, otherwise: string): string =>
  `has(variables.agentFields.${member}) && type(variables.agentFields.${member}) == string ? variables.agentFields.${member} : ${otherwise}`;

/** The stamp of whoever sends the request, as `variables.creator`. */
const CREATOR_VARIABLES: readonly SchemaNode[] = [
  { name: "user", expression: "request.userInfo.username" },
  {
    name: "agentFields",
    expression:
      "has(object.spec) && type(object.spec) == map && has(object.spec.agent) && type(object.spec.agent) == map ? object.spec.agent : {}",
  },
  {
    name: "serviceAccount",
    // system:serviceaccount:<namespace>:<name> without its first word.
    expression: "variables.user.startsWith('system:serviceaccount:') ? variables.user.substring(7) : ''",
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

/** Stamps the creator over whatever the request claims; on updates puts back the stamp that was there. */
function stampPolicy(): SchemaNode[] {
  const name = `created-by.${GROUP}`;
  const path = `'/metadata/annotations/${CREATED_BY.replace("/", "~1")}'`;
  return [
    {
      apiVersion: ADMISSION,
      kind: "MutatingAdmissionPolicy",
      metadata: metadata(name),
      spec: {
        failurePolicy: "Fail",
        // Again after a webhook that rewrote the annotations.
        reinvocationPolicy: "IfNeeded",
        matchConstraints: resources(["CREATE", "UPDATE"], ["worlds", "sandboxes"]),
        matchConditions: [
          { name: "created-or-stamp-changes", expression: `request.operation == 'CREATE' || ${STAMP_CHANGES}` },
        ],
        variables: [
          ...CREATOR_VARIABLES,
          {
            name: "stamp",
            expression: `request.operation != 'CREATE' ? ${stampOf("oldObject")}.orValue('') : variables.creator`,
          },
        ],
        mutations: [
          {
            patchType: "JSONPatch",
            jsonPatch: {
              expression: [
                // An object from before the policy has no stamp and gets none from whoever changes it.
                `variables.stamp == '' ? [JSONPatch{op: 'remove', path: ${path}}]`,
                ": has(object.metadata.annotations)",
                `? [JSONPatch{op: 'add', path: ${path}, value: variables.stamp}]`,
                `: [JSONPatch{op: 'add', path: '/metadata/annotations', value: {${ANNOTATION}: variables.stamp}}]`,
              ].join("\n"),
            },
          },
        ],
      },
    },
    binding("MutatingAdmissionPolicyBinding", name),
  ];
}

/**
 * Behind the stamp: where no mutation writes it (Kubernetes below 1.36), a stamp that the client sends must be true. Mutation
 * comes first, so elsewhere it always is.
 */
function stampIsTruePolicy(): SchemaNode[] {
  const name = `created-by-is-true.${GROUP}`;
  return [
    {
      apiVersion: ADMISSION,
      kind: "ValidatingAdmissionPolicy",
      metadata: metadata(name),
      spec: {
        failurePolicy: "Fail",
        matchConstraints: resources(["CREATE"], ["worlds", "sandboxes"]),
        matchConditions: [{ name: "is-stamped", expression: `${stampOf("object")}.hasValue()` }],
        variables: CREATOR_VARIABLES,
        validations: [
          {
            expression: `${stampOf("object")}.orValue('') == variables.creator`,
            message: `the annotation ${CREATED_BY} names the creator, and that is whoever sends the request: leave it out`,
            reason: "Forbidden",
          },
        ],
      },
    },
    binding("ValidatingAdmissionPolicyBinding", name, { validationActions: ["Deny"] }),
  ];
}

/** Behind the stamp: where no mutation puts it back, a change is refused. */
function stampIsKeptPolicy(): SchemaNode[] {
  const name = `created-by-is-kept.${GROUP}`;
  return [
    {
      apiVersion: ADMISSION,
      kind: "ValidatingAdmissionPolicy",
      metadata: metadata(name),
      spec: {
        failurePolicy: "Fail",
        matchConstraints: resources(["UPDATE"], ["worlds", "sandboxes"]),
        matchConditions: [{ name: "stamp-changes", expression: STAMP_CHANGES }],
        validations: [
          {
            expression: "false",
            message: `the annotation ${CREATED_BY} names the creator and cannot be set, changed or removed`,
            reason: "Forbidden",
          },
        ],
      },
    },
    binding("ValidatingAdmissionPolicyBinding", name, { validationActions: ["Deny"] }),
  ];
}

/** Who makes another version head needs a right of its own: the one to `adopt`, beside the right to write the World. */
function adoptionPolicy(): SchemaNode[] {
  const name = `adopt-head.${GROUP}`;
  const wish = (object: string): string => `${object}.metadata.?annotations[?${celString(ADOPT_HEAD)}]`;
  const right = `authorizer.group('sessions.${GROUP}').resource('worlds').subresource('adopt').namespace(request.namespace).name(request.name)`;
  return [
    {
      apiVersion: ADMISSION,
      kind: "ValidatingAdmissionPolicy",
      metadata: metadata(name),
      spec: {
        failurePolicy: "Fail",
        matchConstraints: resources(["CREATE", "UPDATE"], ["worlds"]),
        matchConditions: [
          {
            name: "adoption-is-wished",
            expression: `${wish("object")}.hasValue() && (request.operation == 'CREATE' || ${wish("object")} != ${wish("oldObject")})`,
          },
        ],
        validations: [
          {
            expression: `${right}.check('create').allowed()`,
            messageExpression: `'the annotation ${ADOPT_HEAD} makes another version head, which ' + request.userInfo.username + ' may not do: create on worlds.sessions.${GROUP}/adopt is needed'`,
            message: `the annotation ${ADOPT_HEAD} makes another version head, which you may not do`,
            reason: "Forbidden",
          },
        ],
      },
    },
    binding("ValidatingAdmissionPolicyBinding", name, { validationActions: ["Deny"] }),
  ];
}

/** Whoever sets the environment must be able to read every Secret in it: otherwise a Sandbox would read for them. */
function secretsPolicy(): SchemaNode[] {
  const name = `environment-secrets.${GROUP}`;
  const positions = Array.from({ length: 64 }, (_, index) => index).join(", ");
  return [
    {
      apiVersion: ADMISSION,
      kind: "ValidatingAdmissionPolicy",
      metadata: metadata(name),
      spec: {
        failurePolicy: "Fail",
        matchConstraints: resources(["CREATE", "UPDATE"], ["sandboxes"]),
        matchConditions: [
          {
            name: "environment-changes",
            expression:
              "has(object.spec.env) && (request.operation == 'CREATE' || object.spec.?env != oldObject.spec.?env)",
          },
        ],
        variables: [
          {
            name: "named",
            expression:
              "object.spec.env.filter(variable, has(variable.secretKeyRef)).map(variable, variable.secretKeyRef.name)",
          },
          {
            // Kubernetes 1.31 has no distinct(): the positions at which a name stands for the first time.
            name: "secrets",
            expression: `[${positions}].filter(i, i < variables.named.size() && variables.named.indexOf(variables.named[i]) == i).map(i, variables.named[i])`,
          },
        ],
        validations: [
          {
            expression: `variables.secrets.size() <= ${ENVIRONMENT_SECRETS_MAX}`,
            message: `spec.env may take values from at most ${ENVIRONMENT_SECRETS_MAX} Secrets`,
            reason: "Invalid",
          },
          ...Array.from({ length: ENVIRONMENT_SECRETS_MAX }, (_, index) => secretIsReadable(index)),
        ],
      },
    },
    binding("ValidatingAdmissionPolicyBinding", name, { validationActions: ["Deny"] }),
  ];
}

/** One validation per Secret: an authorisation check costs 350 000 of the 1 000 000 that one expression may cost. */
function secretIsReadable(index: number): SchemaNode {
  const secret = `variables.secrets[${index}]`;
  return {
    expression: `variables.secrets.size() <= ${index} || authorizer.group('').resource('secrets').namespace(request.namespace).name(${secret}).check('get').allowed()`,
    messageExpression: `'spec.env takes a value from the Secret ' + ${secret} + ', which ' + request.userInfo.username + ' may not read: get on secrets/' + ${secret} + ' is needed'`,
    message: "spec.env takes a value from a Secret that you may not read",
    reason: "Forbidden",
  };
}

/**
 * A host with sessions is reached by its name in `spec.docker.hosts` alone. A session that is admitted at the same moment is not
 * seen here: it waits by name until the host is put back (condition `HostInUse`).
 */
function usedHostsPolicy(): SchemaNode[] {
  const name = `used-hosts.${GROUP}`;
  return [
    {
      apiVersion: ADMISSION,
      kind: "ValidatingAdmissionPolicy",
      metadata: metadata(name),
      spec: {
        failurePolicy: "Fail",
        matchConstraints: resources(["UPDATE"], ["runtimes"]),
        matchConditions: [{ name: "hosts-change", expression: "object.spec.?docker != oldObject.spec.?docker" }],
        variables: [
          { name: "named", expression: "has(object.spec.docker) ? object.spec.docker.hosts.map(host, host.name) : []" },
          {
            name: "missing",
            expression:
              "has(oldObject.status) && has(oldObject.status.hosts) ? oldObject.status.hosts.filter(host, host.used > 0 && !(host.name in variables.named)).map(host, host.name) : []",
          },
        ],
        validations: [
          {
            expression: "variables.missing.size() == 0",
            messageExpression:
              "'spec.docker.hosts: hosts in use cannot be removed: ' + variables.missing.join(', ') + '; cordon the Runtime and wait until its sessions have ended'",
            message: "spec.docker.hosts: hosts in use cannot be removed",
            reason: "Invalid",
          },
        ],
      },
    },
    binding("ValidatingAdmissionPolicyBinding", name, { validationActions: ["Deny"] }),
  ];
}
