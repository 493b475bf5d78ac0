/** The operator's settings as a Markdown table, derived from the schema that checks them. */
import { z } from "zod";
import { configSchema, variableName } from "../../operator/src/config.ts";

/** One setting as the page tells it. */
export interface SettingRow {
  readonly path: string;
  readonly variable: string;
  readonly type: string;
  /** Empty: there is none. */
  readonly fallback: string;
  readonly meaning: string;
}

interface Node {
  readonly [keyword: string]: unknown;
}

/** Every setting, in the order of the schema. */
export function settingRows(): SettingRow[] {
  return rowsOf(z.toJSONSchema(configSchema, { io: "input" }), []);
}

export function settingsTable(): string {
  const lines = settingRows().map(
    ({ path, variable, type, fallback, meaning }) =>
      `| \`${path}\` | \`${variable}\` | ${type} | ${fallback} | ${meaning.replaceAll("|", "\\|")} |`,
  );
  return ["| Setting | Variable | Type | Default | What it is |", "|---|---|---|---|---|", ...lines].join("\n");
}

function rowsOf(node: Node, path: readonly string[]): SettingRow[] {
  const { properties, required } = node;
  if (!isNode(properties)) return [rowOf(node, path, false)];
  return Object.entries(properties).flatMap(([key, child]) => {
    if (!isNode(child)) return [];
    const at = [...path, key];
    const isRequired = Array.isArray(required) && required.includes(key);
    return isNode(child["properties"]) ? rowsOf(child, at) : [rowOf(child, at, isRequired)];
  });
}

function rowOf(node: Node, path: readonly string[], isRequired: boolean): SettingRow {
  return {
    path: path.join("."),
    variable: variableName(path),
    type: typeOf(node),
    fallback: "default" in node ? `\`${String(node["default"])}\`` : isRequired ? "required" : "",
    meaning: String(node["description"] ?? ""),
  };
}

function typeOf(node: Node): string {
  const { items } = node;
  if (Array.isArray(node["enum"])) return node["enum"].map((value) => `\`${String(value)}\``).join(", ");
  if (isNode(items)) return `list of ${typeOf(items)}s, ≤ ${String(node["maxItems"])}; in the variable as JSON`;
  if (node["type"] === "integer" || node["type"] === "number") return rangeOf(node);
  return node["format"] === "uri" ? "URL" : String(node["type"]);
}

function rangeOf({ type, minimum, exclusiveMinimum, maximum }: Node): string {
  const least = minimum === undefined ? `> ${String(exclusiveMinimum)}` : `≥ ${String(minimum)}`;
  return `${String(type)} ${least}, ≤ ${String(maximum)}`;
}

const isNode = (value: unknown): value is Node => typeof value === "object" && value !== null && !Array.isArray(value);
