import type { KindDefinition } from "./definition.ts";
import { UNOBSERVED } from "./kind.ts";
import { API_VERSION, GROUP, VERSION } from "./object.ts";
import { isNode, type SchemaNode, structuralSchema } from "./openapi.ts";
import { VALIDATIONS } from "./schema.ts";

/** The CustomResourceDefinition of a kind, as `kubectl apply` takes it. */
export function customResourceDefinition(definition: KindDefinition): SchemaNode {
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: {
      name: `${definition.plural}.${GROUP}`,
      labels: { "app.kubernetes.io/part-of": "agent-worlds" },
    },
    spec: {
      group: GROUP,
      scope: definition.scope,
      names: {
        kind: definition.kind,
        listKind: `${definition.kind}List`,
        plural: definition.plural,
        singular: definition.singular,
        shortNames: [definition.shortName],
        categories: ["agentworlds"],
      },
      versions: [
        {
          name: VERSION,
          served: true,
          storage: true,
          subresources: { status: {} },
          additionalPrinterColumns: definition.columns.map((column) => ({ ...column })),
          schema: { openAPIV3Schema: objectSchema(definition) },
        },
      ],
    },
  };
}

/** The schema of the whole object. */
export function objectSchema(definition: KindDefinition): SchemaNode {
  const status = structuralSchema(definition.status);
  return {
    description: definition.description,
    type: "object",
    required: ["spec"],
    properties: {
      apiVersion: { description: `Always \`${API_VERSION}\`.`, type: "string", maxLength: 64 },
      kind: { description: `Always \`${definition.kind}\`.`, type: "string", maxLength: 64 },
      metadata: { type: "object" },
      spec: described("What is wished for.", structuralSchema(definition.spec)),
      // Without the default a new object has no observedGeneration, and kstatus calls it current before anything was done.
      status: described("What is so. Written by the operator only.", {
        ...status,
        default: { ...UNOBSERVED },
      }),
    },
    [VALIDATIONS]: [
      {
        rule: "self.metadata.name.size() <= 63",
        message: `the name of a ${definition.kind} must have at most 63 characters`,
      },
    ],
  };
}

const described = (description: string, { type, default: preset, ...rest }: SchemaNode): SchemaNode => ({
  description,
  type,
  ...(preset === undefined ? {} : { default: preset }),
  ...rest,
});

/** The schema node below a definition, for readers that need one; the field tables for example. */
export function sectionOf(definition: KindDefinition, section: "spec" | "status"): SchemaNode {
  const properties = objectSchema(definition)["properties"];
  const node = isNode(properties) ? properties[section] : undefined;
  if (!isNode(node)) throw new TypeError(`${definition.kind} has no ${section}`);
  return node;
}
