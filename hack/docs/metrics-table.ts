/** The operator's metrics as Markdown tables, derived from the registry that serves them. */
import { z } from "zod";
import { createMetrics } from "../../operator/src/telemetry/metrics.ts";

const metricSchema = z.object({
  name: z.string(),
  help: z.string(),
  type: z.enum(["counter", "gauge", "histogram", "summary"]),
  labelNames: z.array(z.string()),
});
type Metric = z.infer<typeof metricSchema>;

/** Every metric of an operator; `own` is false for those of the process (memory, event loop), which every Node program has. */
export function metricRows(): (Metric & { unit: string; own: boolean })[] {
  const { registry, ownNames } = createMetrics({ controllers: [], resources: [] });
  return registry
    .getMetricsAsArray()
    .map((metric) => metricSchema.parse(metric))
    .map((metric) => ({ ...metric, unit: unitOf(metric), own: ownNames.includes(metric.name) }))
    .sort((left, right) => (left.name < right.name ? -1 : 1));
}

export function metricsTable(which: "own" | "process"): string {
  const lines = metricRows()
    .filter(({ own }) => own === (which === "own"))
    .map(({ name, type, labelNames, unit, help }) => {
      const labels = labelNames.map((label) => `\`${label}\``).join(", ");
      return `| \`${name}\` | ${type} | ${labels} | ${unit} | ${help.replaceAll("|", "\\|")} |`;
    });
  return ["| Metric | Type | Labels | Unit | What it is |", "|---|---|---|---|---|", ...lines].join("\n");
}

/** By the naming rules of Prometheus the unit is in the name; what names none is a count. */
function unitOf({ name }: Metric): string {
  if (name.endsWith("_timestamp_seconds") || name.endsWith("start_time_seconds")) return "seconds since 1970";
  if (/_seconds(_total)?$/.test(name)) return "seconds";
  return name.includes("_bytes") ? "bytes" : "count";
}
