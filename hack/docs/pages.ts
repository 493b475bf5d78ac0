import { fillMarker } from "../../crds/src/field-table.ts";
import { metricsTable } from "./metrics-table.ts";
import { settingsTable } from "./settings-table.ts";

/** A page whose tables derive from the code; its path is relative to the repository. */
export interface GeneratedPage {
  readonly path: string;
  readonly content: string;
}

/** The pages as they should be. `read` returns a page of prose whose tables are to be filled. Throws `MarkerMissing`. */
export async function generatedPages(read: (path: string) => Promise<string>): Promise<GeneratedPage[]> {
  const settings = "docs/configuration.md";
  const metrics = "docs/metrics.md";
  const withOwn = fillMarker(await read(metrics), "own metrics", metricsTable("own"));
  return [
    { path: settings, content: fillMarker(await read(settings), "settings", settingsTable()) },
    { path: metrics, content: fillMarker(withOwn, "metrics of the process", metricsTable("process")) },
  ];
}
