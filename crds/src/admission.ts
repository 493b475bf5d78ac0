import { CREATED_BY, CREATOR_VARIABLES, STAMP_NAME, STAMPED_RESOURCES } from "./creator-stamp.ts";
import { GROUP, VERSION } from "./object.ts";
import type { SchemaNode } from "./openapi.ts";
import { REQUEST_ID, REQUEST_ID_RULE } from "./requests.ts";
import { celString } from "./schema.ts";

/** Most Secrets that one Sandbox may take variables from: each costs the API server one authorisation. */
export const ENVIRONMENT_SECRETS_MAX = 16;

/** Digest of the newest version in the registry, which is to become head although `World.status` is older (docs/adr/0012). */
export const ADOPT_HEAD = "agentworlds.dev/adopt-head";

/** Id of a snapshot that is asked for by annotation: the controller copies it into `status.requests[]` once (DESIGN §6). */
export const SNAPSHOT_REQUESTED = "agentworlds.dev/snapshot-requested";

/** Name of the user who set it, as authenticated: stamped beside it where the API server can, checked everywhere. */
export const SNAPSHOT_REQUESTED_BY = "agentworlds.dev/snapshot-requested-by";

const ADMISSION = "admissionregistration.k8s.io/v1";

/** The policies that every supported API server carries out itself (1.30 and newer), whoever sends the request. */
export function validatingPolicies(): SchemaNode[] {
  return [
    ...stampIsTherePolicy(),
    ...stampIsTruePolicy(),
    ...stampIsKeptPolicy(),
    ...adoptionPolicy(),
    ...hookPolicy(),
    ...snapshotPolicy(),
    ...snapshotUserPolicy(),
    ...secretsPolicy(),
    ...usedHostsPolicy(),
  ];
}

/** The policies that need MutatingAdmissionPolicy v1, so 1.36; elsewhere a webhook of the gateways stamps (docs/adr/0008-creator-stamp.md). */
export function mutatingPolicies(): SchemaNode[] {
  return [...stampPolicy(), ...snapshotStampPolicy()];
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

/** Stamps the creator over whatever the request claims; on updates puts back the stamp that was there. */
function stampPolicy(): SchemaNode[] {
  const name = STAMP_NAME;
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
        matchConstraints: resources(["CREATE", "UPDATE"], STAMPED_RESOURCES),
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

/** A policy that refuses what its validations do not allow, and what binds it to every request. */
const denying = (name: string, spec: SchemaNode): SchemaNode[] => [
  {
    apiVersion: ADMISSION,
    kind: "ValidatingAdmissionPolicy",
    metadata: metadata(name),
    spec: { failurePolicy: "Fail", ...spec },
  },
  binding("ValidatingAdmissionPolicyBinding", name, { validationActions: ["Deny"] }),
];

/**
 * Behind the stamp: an object that nobody stamped is refused, because nothing could be held against its creator. Where the
 * stamp is missing, its text is in the refusal: whoever states truly who they are needs no gateway.
 */
function stampIsTherePolicy(): SchemaNode[] {
  const name = `created-by-is-there.${GROUP}`;
  return denying(name, {
    matchConstraints: resources(["CREATE"], STAMPED_RESOURCES),
    matchConditions: [{ name: "is-not-stamped", expression: `!${stampOf("object")}.hasValue()` }],
    variables: CREATOR_VARIABLES,
    validations: [
      {
        expression: "false",
        messageExpression: [
          `'nothing stamped who creates this: below Kubernetes 1.36 a gateway of Agent Worlds does, and none is registered; '`,
          `+ 'try again when one serves, or set the annotation ${CREATED_BY} to ' + variables.creator`,
        ].join("\n"),
        message: `nothing stamped who creates this: the annotation ${CREATED_BY} is missing`,
        reason: "Forbidden",
      },
    ],
  });
}

/** Behind the stamp: one that the client sends must be true. Mutation comes first, so where something stamps it always is. */
function stampIsTruePolicy(): SchemaNode[] {
  const name = `created-by-is-true.${GROUP}`;
  return denying(name, {
    matchConstraints: resources(["CREATE"], STAMPED_RESOURCES),
    matchConditions: [{ name: "is-stamped", expression: `${stampOf("object")}.hasValue()` }],
    variables: CREATOR_VARIABLES,
    validations: [
      {
        expression: `${stampOf("object")}.orValue('') == variables.creator`,
        message: `the annotation ${CREATED_BY} names the creator, and that is whoever sends the request: leave it out`,
        reason: "Forbidden",
      },
    ],
  });
}

/** Behind the stamp: where no mutation puts it back, a change is refused. */
function stampIsKeptPolicy(): SchemaNode[] {
  const name = `created-by-is-kept.${GROUP}`;
  return denying(name, {
    matchConstraints: resources(["UPDATE"], STAMPED_RESOURCES),
    matchConditions: [{ name: "stamp-changes", expression: STAMP_CHANGES }],
    validations: [
      {
        expression: "false",
        message: `the annotation ${CREATED_BY} names the creator and cannot be set, changed or removed`,
        reason: "Forbidden",
      },
    ],
  });
}

const annotationOf = (object: string, name: string): string => `${object}.metadata.?annotations[?${celString(name)}]`;

/** Something is wished that was not, or another thing: whatever else changes, and whoever changes it, wishes nothing. */
const isSetOrChanges = (wishOf: (object: string) => string): string =>
  `${wishOf("object")}.hasValue() && (request.operation == 'CREATE' || ${wishOf("object")} != ${wishOf("oldObject")})`;

/** `what` takes the right to the verb, for this object or for every one of the namespace. */
function needsRight(
  what: string,
  { verb, of }: { readonly verb: `${"worlds" | "sandboxes"}/${string}`; readonly of: "Object" | "Namespace" },
): SchemaNode {
  const [resource, subresource] = verb.split("/");
  const right = `authorizer.group('sessions.${GROUP}').resource('${resource}').subresource('${subresource}').namespace(request.namespace)${of === "Object" ? ".name(request.name)" : ""}`;
  const where = of === "Object" ? "" : " in this namespace";
  return {
    expression: `${right}.check('create').allowed()`,
    messageExpression: `'${what}, which ' + request.userInfo.username + ' may not do: create on ${resource}.sessions.${GROUP}/${subresource} is needed${where}'`,
    message: `${what}, which you may not do`,
    reason: "Forbidden",
  };
}

/** Who makes another version head needs a right of its own: the one to `adopt`, beside the right to write the World. */
function adoptionPolicy(): SchemaNode[] {
  const wish = (object: string): string => annotationOf(object, ADOPT_HEAD);
  return denying(`adopt-head.${GROUP}`, {
    matchConstraints: resources(["CREATE", "UPDATE"], ["worlds"]),
    matchConditions: [{ name: "adoption-is-wished", expression: isSetOrChanges(wish) }],
    validations: [
      needsRight(`the annotation ${ADOPT_HEAD} makes another version head`, { verb: "worlds/adopt", of: "Object" }),
    ],
  });
}

/** A hook runs in the sessions of everybody, with their environment: who sets it could run commands there anyway. */
function hookPolicy(): SchemaNode[] {
  const hookOf = (object: string): string => `${object}.spec.?snapshot.?hook`;
  return denying(`snapshot-hook.${GROUP}`, {
    matchConstraints: resources(["CREATE", "UPDATE"], ["worlds"]),
    // To take it away runs nothing.
    matchConditions: [{ name: "hook-is-set-or-changes", expression: isSetOrChanges(hookOf) }],
    validations: [
      needsRight("spec.snapshot.hook runs a command in the sessions of this World", {
        verb: "sandboxes/exec",
        of: "Namespace",
      }),
    ],
  });
}

const SNAPSHOT_ID = annotationOf("object", SNAPSHOT_REQUESTED);
const SNAPSHOT_USER = annotationOf("object", SNAPSHOT_REQUESTED_BY);
const KNOWN_SNAPSHOT_USER = annotationOf("oldObject", SNAPSHOT_REQUESTED_BY);
/** Somebody asks now. */
const ASKS_FOR_SNAPSHOT = `(${isSetOrChanges((object) => annotationOf(object, SNAPSHOT_REQUESTED))})`;
/** Who has asked: the sender of the request that asks, and after that whoever it was. */
const SNAPSHOT_ASKER = `(${ASKS_FOR_SNAPSHOT} ? request.userInfo.username : request.operation == 'CREATE' || !${SNAPSHOT_ID}.hasValue() ? '' : ${KNOWN_SNAPSHOT_USER}.orValue(''))`;
const ANOTHER_SNAPSHOT_USER = {
  name: "user-is-another",
  expression: `${SNAPSHOT_USER}.orValue('') != ${SNAPSHOT_ASKER}`,
};

/** Who asks for a snapshot by annotation needs the right to ask for it by verb, and an id that the verb would take. */
function snapshotPolicy(): SchemaNode[] {
  const known = "oldObject.?status.?requests.orValue([])";
  return denying(`snapshot-requested.${GROUP}`, {
    matchConstraints: resources(["CREATE", "UPDATE"], ["sandboxes"]),
    matchConditions: [{ name: "snapshot-is-asked-for", expression: ASKS_FOR_SNAPSHOT }],
    validations: [
      needsRight(`the annotation ${SNAPSHOT_REQUESTED} asks for a snapshot`, {
        verb: "sandboxes/snapshot",
        of: "Object",
      }),
      {
        expression: `${SNAPSHOT_ID}.orValue('').matches(${celString(REQUEST_ID.source)})`,
        message: `the annotation ${SNAPSHOT_REQUESTED} must be an id of ${REQUEST_ID_RULE}`,
        reason: "Invalid",
      },
      {
        expression: `request.operation == 'CREATE' || !${known}.exists(known, known.id == ${SNAPSHOT_ID}.orValue('') && known.verb != 'Snapshot')`,
        message: `the annotation ${SNAPSHOT_REQUESTED} has an id that was used for another verb of this Sandbox: use a new one`,
        reason: "Invalid",
      },
    ],
  });
}

/** Behind the stamp, and in its place where nothing stamps: the user that is named beside the id is the one who asks. */
function snapshotUserPolicy(): SchemaNode[] {
  const name = `snapshot-requested-by.${GROUP}`;
  return denying(name, {
    matchConstraints: resources(["CREATE", "UPDATE"], ["sandboxes"]),
    matchConditions: [
      { name: "user-is-named", expression: `${SNAPSHOT_USER}.orValue('') != ''` },
      ANOTHER_SNAPSHOT_USER,
    ],
    validations: [
      {
        // What stays as it was is nobody's claim: the id alone was taken away.
        expression: `request.operation != 'CREATE' && !${ASKS_FOR_SNAPSHOT} && ${SNAPSHOT_USER} == ${KNOWN_SNAPSHOT_USER}`,
        message: `the annotation ${SNAPSHOT_REQUESTED_BY} names whoever sets ${SNAPSHOT_REQUESTED}, together with it: remove it, or set it to your own user name`,
        reason: "Forbidden",
      },
    ],
  });
}

/** Stamps who asks for a snapshot by annotation; puts it back when somebody else changes it. */
function snapshotStampPolicy(): SchemaNode[] {
  const name = `snapshot-requested-by.${GROUP}`;
  const path = `'/metadata/annotations/${SNAPSHOT_REQUESTED_BY.replace("/", "~1")}'`;
  return [
    {
      apiVersion: ADMISSION,
      kind: "MutatingAdmissionPolicy",
      metadata: metadata(name),
      spec: {
        failurePolicy: "Fail",
        reinvocationPolicy: "IfNeeded",
        matchConstraints: resources(["CREATE", "UPDATE"], ["sandboxes"]),
        matchConditions: [ANOTHER_SNAPSHOT_USER],
        variables: [{ name: "asker", expression: SNAPSHOT_ASKER }],
        mutations: [
          {
            patchType: "JSONPatch",
            jsonPatch: {
              // One of the two annotations is there, so there are annotations.
              expression: [
                `variables.asker == '' ? [JSONPatch{op: 'remove', path: ${path}}]`,
                `: [JSONPatch{op: 'add', path: ${path}, value: variables.asker}]`,
              ].join("\n"),
            },
          },
        ],
      },
    },
    binding("MutatingAdmissionPolicyBinding", name),
  ];
}

/** Whoever sets the environment must be able to read every Secret in it: otherwise a Sandbox would read for them. */
function secretsPolicy(): SchemaNode[] {
  const name = `environment-secrets.${GROUP}`;
  const positions = Array.from({ length: 64 }, (_, index) => index).join(", ");
  return denying(name, {
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
  });
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
  return denying(name, {
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
  });
}
