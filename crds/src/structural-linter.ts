import { isNode, members, type SchemaNode } from "./openapi.ts";
import { VALIDATIONS } from "./schema.ts";

/** Something that the API server would refuse, or that the house rules of DESIGN §3 forbid. */
export interface Finding {
  /** Path of the field, `spec.env[].name` for example. */
  readonly path: string;
  readonly message: string;
}

/** Where a node stands, as far as its rules depend on it. */
interface Place {
  readonly path: string;
  readonly node: SchemaNode;
}

type Rule = (place: Place) => readonly string[];

/**
 * Everything wrong with the schema of a whole object. The rules of structural schemas are those of
 * https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
 */
export function lintSchema(root: SchemaNode): Finding[] {
  const findings: Finding[] = [];
  for (const [name, child] of members(root, "properties")) visit({ path: name, node: child }, findings);
  return findings;
}

function visit(place: Place, findings: Finding[]): void {
  // metadata's schema belongs to the API server.
  if (place.path === "metadata") return;
  for (const rule of RULES) for (const message of rule(place)) findings.push({ path: place.path, message });
  for (const [name, child] of members(place.node, "properties"))
    visit({ path: `${place.path}.${name}`, node: child }, findings);
  const { items, additionalProperties } = place.node;
  if (isNode(items)) visit({ path: `${place.path}[]`, node: items }, findings);
  if (isNode(additionalProperties)) visit({ path: `${place.path}{}`, node: additionalProperties }, findings);
}

const FORBIDDEN = [
  "$ref",
  "oneOf",
  "allOf",
  "not",
  "definitions",
  "dependencies",
  "deprecated",
  "id",
  "patternProperties",
  "uniqueItems",
  "nullable",
  "const",
];

const forbiddenKeywords: Rule = ({ node }) =>
  FORBIDDEN.filter((keyword) => keyword in node).map(
    (keyword) => `${keyword} is not allowed in a structural schema here`,
  );

const hasOneType: Rule = ({ node }) => {
  if (node["x-kubernetes-int-or-string"] === true) return "type" in node ? ["an int-or-string has no type"] : [];
  if ("anyOf" in node) return ["anyOf is allowed for an int-or-string only"];
  const known = ["object", "array", "string", "integer", "boolean"];
  if (!known.includes(String(node["type"])))
    return [`type must be one of ${known.join(", ")}, not ${String(node["type"])}`];
  return node["type"] === "boolean" ? ["a boolean cannot grow a third value: use an enum"] : [];
};

const isIntOrStringFragment: Rule = ({ node }) => {
  if (node["x-kubernetes-int-or-string"] !== true) return [];
  const want = JSON.stringify([{ type: "integer" }, { type: "string" }]);
  return JSON.stringify(node["anyOf"]) === want ? [] : [`an int-or-string must have exactly anyOf: ${want}`];
};

const stringsAreBounded: Rule = ({ node }) => {
  const isText = node["type"] === "string" || node["x-kubernetes-int-or-string"] === true;
  const bounded = "maxLength" in node || "enum" in node || node["format"] === "date-time";
  return isText && !bounded ? ["a string must have maxLength, an enum or format: date-time"] : [];
};

const listsAreBounded: Rule = ({ node }) => {
  if (node["type"] !== "array") return [];
  return [
    ...("maxItems" in node ? [] : ["a list must have maxItems"]),
    ...(isNode(node["items"]) ? [] : ["a list must say what its items are"]),
    ...listTypeFindings(node),
  ];
};

function listTypeFindings(node: SchemaNode): string[] {
  const kind = node["x-kubernetes-list-type"];
  if (kind === "atomic" || kind === "set") return [];
  if (kind !== "map") return ["a list must have x-kubernetes-list-type: atomic, set or map"];
  const keys = node["x-kubernetes-list-map-keys"];
  const items = isNode(node["items"]) ? node["items"] : {};
  const required = Array.isArray(items["required"]) ? items["required"] : [];
  if (!Array.isArray(keys) || keys.length === 0) return ["a list of type map must name its keys"];
  return keys
    .filter((key) => !required.includes(key))
    .map((key) => `the key ${String(key)} of a list of type map must be required`);
}

const mapsAreBounded: Rule = ({ node }) => {
  if (!("additionalProperties" in node)) return [];
  if ("properties" in node) return ["additionalProperties and properties exclude each other"];
  if (!isNode(node["additionalProperties"])) return ["additionalProperties must be a schema"];
  return "maxProperties" in node ? [] : ["a map must have maxProperties"];
};

const integersAreBounded: Rule = ({ node }) => {
  if (node["type"] !== "integer") return [];
  return [
    ...(node["format"] === "int32" || node["format"] === "int64" ? [] : ["an integer must have format int32 or int64"]),
    ...("minimum" in node && "maximum" in node ? [] : ["an integer must have minimum and maximum"]),
  ];
};

/** Go's RE2 has neither look-around nor back references. */
const patternsAreRe2: Rule = ({ node }) => {
  const patterns = [node["pattern"], ...celRules(node).map((rule) => rule["rule"])];
  return patterns
    .filter((pattern) => typeof pattern === "string" && /\(\?(?:[=!]|<[=!])|\\[1-9]/.test(pattern))
    .map(() => "an expression must not use look-around or back references: Go's RE2 has none");
};

const celRules = (node: SchemaNode): SchemaNode[] => {
  const rules = node[VALIDATIONS];
  return Array.isArray(rules) ? rules.filter(isNode) : [];
};

const rulesSpeak: Rule = ({ node }) =>
  celRules(node).flatMap((rule) => {
    const message = rule["message"];
    const findings: string[] = [];
    if (typeof message !== "string" || message.trim() === "")
      findings.push(`the rule ${String(rule["rule"])} must have a message`);
    else if (/[\r\n]/.test(message)) findings.push("a message must be one line");
    // Measured on 1.37: comparing optionals has no cost bound and the whole CRD is refused.
    if (String(rule["rule"]).includes(".?"))
      findings.push("a rule must use has() and not .?: its cost would be unbounded");
    const path = rule["fieldPath"];
    if (typeof path === "string" && !pointsAtProperty(node, path))
      findings.push(`fieldPath ${path} points at no property`);
    return findings;
  });

/** Only direct members are pointed at. */
const pointsAtProperty = (node: SchemaNode, path: string): boolean =>
  members(node, "properties").some(([name]) => path === `.${name}`);

/**
 * A rule on an optional field does not run when the field appears or disappears, so `oldSelf` there would make a field
 * immutable that can be set once or removed.
 */
const transitionsAreComplete: Rule = ({ node }) =>
  members(node, "properties")
    .filter(([name, child]) => comparesWithOld(child) && !requiredNames(node).includes(name))
    .map(([name]) => `a rule with oldSelf on the optional field ${name} misses set and removed: put it on the parent`);

const comparesWithOld = (node: SchemaNode): boolean =>
  celRules(node).some((rule) => typeof rule["rule"] === "string" && rule["rule"].includes("oldSelf"));

const mustBeStated = (node: SchemaNode): boolean =>
  members(node, "properties").some(([name, child]) => requiredNames(node).includes(name) && !("default" in child));

const requiredNames = (node: SchemaNode): unknown[] => (Array.isArray(node["required"]) ? node["required"] : []);

/**
 * The server fills a nested default only into an object that is there: the parent must spell it out. Not where the object has a
 * member that nobody can preset: such a one is there as a whole or not at all.
 */
const nestedDefaultsAreSpelledOut: Rule = ({ node }) =>
  members(node, "properties").flatMap(([name, child]) => {
    const nested = members(child, "properties").filter(([, grandchild]) => "default" in grandchild);
    if (nested.length === 0) return [];
    const preset = child["default"];
    if (preset === undefined && (requiredNames(node).includes(name) || mustBeStated(child))) return [];
    if (!isNode(preset)) return [`${name} must have a default that spells out its members' defaults`];
    return nested
      .filter(([key, grandchild]) => JSON.stringify(preset[key]) !== JSON.stringify(grandchild["default"]))
      .map(([key]) => `the default of ${name} must spell out ${key} as ${key} itself has it`);
  });

const defaultsAreOptional: Rule = ({ node }) =>
  members(node, "properties")
    .filter(([name, child]) => "default" in child && requiredNames(node).includes(name))
    .map(([name]) => `${name} has a default and cannot be required`);

const fieldsAreDescribed: Rule = ({ node }) =>
  members(node, "properties")
    .filter(([, child]) => typeof child["description"] !== "string" || child["description"] === "")
    .map(([name]) => `${name} must have a description`);

/** House rules on names: absolute times end in At (since apart), durations in Seconds. */
const namesTellTheUnit: Rule = ({ node }) =>
  members(node, "properties").flatMap(([name, child]) => {
    const isTime = child["format"] === "date-time";
    if (isTime && !/(^at|At|^since|Time)$/.test(name)) return [`${name} is a time: its name must end in At`];
    if (!isTime && /[a-z]At$/.test(name)) return [`${name} ends in At and is no time`];
    if (/(Minutes|Hours|Millis|Duration|Timeout)$/.test(name)) return [`${name}: a duration is in seconds and says so`];
    return [];
  });

const RULES: readonly Rule[] = [
  forbiddenKeywords,
  hasOneType,
  isIntOrStringFragment,
  stringsAreBounded,
  listsAreBounded,
  mapsAreBounded,
  integersAreBounded,
  patternsAreRe2,
  rulesSpeak,
  transitionsAreComplete,
  nestedDefaultsAreSpelledOut,
  defaultsAreOptional,
  fieldsAreDescribed,
  namesTellTheUnit,
];
