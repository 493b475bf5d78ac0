import * as z from "zod";

/** A node of an OpenAPI v3 schema. */
export type SchemaNode = { [keyword: string]: unknown };

/** The schema of one property, or undefined. */
export const isNode = (value: unknown): value is SchemaNode =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The named schemas below a node's keyword; `properties` for example. */
export const members = (node: SchemaNode, keyword: string): [string, SchemaNode][] => {
  const container = node[keyword];
  if (!isNode(container)) return [];
  return Object.entries(container).flatMap(([name, child]) =>
    isNode(child) ? [[name, child] as [string, SchemaNode]] : [],
  );
};

const INT32_MAX = 2_147_483_647;
const INT32_MIN = -2_147_483_648;

/**
 * The structural schema (apiextensions v1) of a zod schema. Input shape: a field with a default may be absent. What zod
 * writes and a structural schema refuses is put right here; what cannot be represented throws in zod.
 */
export function structuralSchema(schema: z.ZodType): SchemaNode {
  const raw: unknown = z.toJSONSchema(schema, {
    target: "openapi-3.0",
    io: "input",
    unrepresentable: "throw",
    cycles: "throw",
    reused: "inline",
    override: ({ zodSchema, jsonSchema }) => {
      if (zodSchema._zod.def.type === "string" && jsonSchema.format === "date-time") {
        // zod adds a 300-character expression to the format; the API server checks the format itself.
        delete jsonSchema.pattern;
      }
    },
  });
  if (!isNode(raw)) throw new TypeError("a kind's schema must be an object");
  return settle(raw);
}

/** Keywords in the order a reader looks for them. */
const ORDER = [
  "description",
  "type",
  "format",
  "default",
  "enum",
  "minimum",
  "maximum",
  "minLength",
  "maxLength",
  "pattern",
  "minItems",
  "maxItems",
  "maxProperties",
  "anyOf",
  "required",
  "properties",
  "additionalProperties",
  "items",
];

function settle(node: SchemaNode): SchemaNode {
  if (node["x-kubernetes-int-or-string"] === true) return intOrString(node);
  const settled: SchemaNode = {};
  const keywords = Object.keys(node).sort((left, right) => rank(left) - rank(right) || (left < right ? -1 : 1));
  for (const keyword of keywords) settled[keyword] = settleKeyword(keyword, node[keyword]);
  if (settled["type"] === "integer") {
    const { minimum, maximum } = settled;
    const small = Number(maximum) <= INT32_MAX && Number(minimum) >= INT32_MIN;
    return { ...pick(settled, ["description", "type"]), format: small ? "int32" : "int64", ...settled };
  }
  return settled;
}

const rank = (keyword: string): number => {
  const index = ORDER.indexOf(keyword);
  return index < 0 ? ORDER.length : index;
};

const pick = (node: SchemaNode, keywords: readonly string[]): SchemaNode =>
  Object.fromEntries(keywords.filter((keyword) => keyword in node).map((keyword) => [keyword, node[keyword]]));

function settleKeyword(keyword: string, value: unknown): unknown {
  if (keyword === "properties" && isNode(value)) {
    return Object.fromEntries(
      members({ properties: value }, "properties").map(([name, child]) => [name, settle(child)]),
    );
  }
  if ((keyword === "items" || keyword === "additionalProperties") && isNode(value)) return settle(value);
  return value;
}

/** The only shape the API server takes for a value that is a whole number or a string. */
function intOrString(node: SchemaNode): SchemaNode {
  const { description, default: preset } = node;
  return {
    ...(description === undefined ? {} : { description }),
    ...(preset === undefined ? {} : { default: preset }),
    anyOf: [{ type: "integer" }, { type: "string" }],
    maxLength: 32,
    "x-kubernetes-int-or-string": true,
    ...pick(node, ["x-kubernetes-validations"]),
  };
}
