import { isNode, members, type SchemaNode } from "./openapi.ts";

/** One row of a kind's reference. */
interface FieldRow {
  readonly path: string;
  readonly node: SchemaNode;
  readonly required: boolean;
}

/** The fields below a section as a Markdown table, in the order of the schema. */
export function fieldTable(section: SchemaNode, prefix: string): string {
  const lines = rowsOf(section, prefix).map(
    ({ path, node, required }) =>
      `| \`${path}\` | ${typeOf(node)} | ${required ? "required" : defaultOf(node)} | ${inCell(String(node["description"] ?? ""))} |`,
  );
  return ["| Field | Type | Default | What it is |", "|---|---|---|---|", ...lines].join("\n");
}

function rowsOf(node: SchemaNode, prefix: string): FieldRow[] {
  const required = Array.isArray(node["required"]) ? node["required"] : [];
  return members(node, "properties").flatMap(([name, child]) => {
    const path = `${prefix}.${name}`;
    return [{ path, node: child, required: required.includes(name) }, ...rowsBelow(child, path)];
  });
}

function rowsBelow(node: SchemaNode, path: string): FieldRow[] {
  const { items } = node;
  return isNode(items) ? rowsOf(items, `${path}[]`) : rowsOf(node, path);
}

function typeOf(node: SchemaNode): string {
  if (node["x-kubernetes-int-or-string"] === true) return "quantity";
  const { items, additionalProperties, format } = node;
  if (Array.isArray(node["enum"])) return node["enum"].map((value) => `\`${String(value)}\``).join(", ");
  if (isNode(items))
    return `list of ${items["type"] === "object" ? "objects" : typeOf(items)}, ≤ ${String(node["maxItems"])}`;
  if (isNode(additionalProperties)) return `map of ${typeOf(additionalProperties)}, ≤ ${String(node["maxProperties"])}`;
  if (format === "date-time") return "time";
  if (node["type"] === "integer") return integerRange(node);
  if (node["type"] === "string") return `string, ≤ ${String(node["maxLength"])}`;
  return String(node["type"]);
}

const INT_CEILINGS: readonly unknown[] = [2_147_483_647, Number.MAX_SAFE_INTEGER];

const integerRange = ({ minimum, maximum }: SchemaNode): string =>
  INT_CEILINGS.includes(maximum) ? `integer ≥ ${String(minimum)}` : `integer ${String(minimum)} … ${String(maximum)}`;

/** The default of an object is the sum of its members' defaults, which have rows of their own. */
const defaultOf = (node: SchemaNode): string =>
  "default" in node && !isNode(node["default"]) ? `\`${String(node["default"])}\`` : "";

const inCell = (text: string): string => text.replaceAll("|", "\\|");

/** Thrown when a page lacks the markers of a table. */
export class MarkerMissing extends Error {
  override readonly name = "MarkerMissing";
  constructor(marker: string) {
    super(`the page has no lines "${begin(marker)}" and "${end(marker)}" in this order`);
  }
}

const begin = (marker: string): string => `<!-- generated: ${marker} -->`;
const end = (marker: string): string => `<!-- end: ${marker} -->`;

/** The page with the text between the two markers replaced. Throws `MarkerMissing`. */
export function fillMarker(page: string, marker: string, text: string): string {
  const from = page.indexOf(begin(marker));
  const to = page.indexOf(end(marker), from);
  if (from < 0 || to < 0) throw new MarkerMissing(marker);
  return `${page.slice(0, from + begin(marker).length)}\n\n${text}\n\n${page.slice(to)}`;
}
