/** The one line that a run ends with (DESIGN §10), and whether the run passed. */
import type { AuditReport } from "./auditor.ts";
import type { Performed } from "./performance.ts";

export type ChaosResult = {
  readonly seed: number;
  readonly faults: number;
  readonly killPoints: { readonly covered: number; readonly total: number };
} & AuditReport["counts"] & {
    /** Faults that came true while an operation was on its way. */
    readonly hitInFlight: number;
  };

export function resultOf(seed: number, { struck, coverage, report }: Performed): ChaosResult {
  const covered = coverage.covered.length;
  return {
    seed,
    faults: struck.length,
    killPoints: { covered, total: covered + coverage.uncovered.length },
    ...report.counts,
    hitInFlight: struck.filter(({ inFlight }) => inFlight.length > 0).length,
  };
}

/** One sentence for everything that was promised and is not so; empty when the run passed. */
export function failuresOf(performed: Performed, demands: { everyPoint: boolean }): string[] {
  const { struck, coverage, report, strayEnds, unsettled } = performed;
  const hit = struck.filter(({ inFlight }) => inFlight.length > 0).length;
  const { looked } = report;
  return [
    ...report.findings.map(({ kind, what }) => `${kind}: ${what}`),
    ...unsettled.map((what) => `did not settle: ${what}`),
    ...strayEnds.map((what) => `the operator ended by itself: ${what}`),
    ...(demands.everyPoint ? coverage.uncovered.map((point) => `nobody died ${point}`) : []),
    ...coverage.uncovered
      .filter((point) => point.includes("untraced"))
      .map((point) => `an effect without a point: ${point}`),
    ...(hit * 2 < struck.length ? [`only ${hit} of ${struck.length} faults hit an operation in flight`] : []),
    ...(looked.versions === 0 || looked.files === 0 || looked.boots === 0 || looked.tags === 0
      ? [`the audit looked at nothing: ${JSON.stringify(looked)}`]
      : []),
  ];
}

/** How often each kind came, came true and hit an operation in flight. */
export function tableOf({ struck }: Performed): string[] {
  const kinds = [...new Set(struck.map(({ kind }) => kind))].sort();
  return [
    "| fault | times | came true | hit an operation in flight |",
    "|---|---|---|---|",
    ...kinds.map((kind) => {
      const of = struck.filter((one) => one.kind === kind);
      const counts = [
        of.length,
        of.filter((one) => one.cameTrue).length,
        of.filter((one) => one.inFlight.length > 0).length,
      ];
      return `| ${kind} | ${counts.join(" | ")} |`;
    }),
  ];
}
