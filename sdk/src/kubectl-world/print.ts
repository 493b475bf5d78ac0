/** Rescues for a person's eyes. */
import type { LostWork, WorldRescue } from "@agentworlds/crds";
import type { RescueList } from "../rescues.ts";

const HEAD = ["OPERATION", "SANDBOX", "WHERE", "SINCE", "UNTIL", "TRIES", "WHY"];

/** A table as kubectl prints one, newest last; then what was lost and nobody took note of. */
export function printed({ rescues, lostWork }: RescueList): string {
  const open = lostWork.filter((lost) => lost.discardedBy === undefined);
  if (rescues.length === 0 && open.length === 0) return "No rescues: everything is published.\n";
  const rows = rescues.map(rowOf);
  const lines = rows.length === 0 ? [] : aligned([HEAD, ...rows]);
  return [...lines, ...open.map(lineOf)].map((line) => `${line}\n`).join("");
}

const rowOf = (rescue: WorldRescue): string[] => [
  rescue.operation,
  rescue.sandbox.name,
  `${rescue.runtime}/${rescue.host}`,
  rescue.since,
  rescue.expiresAt ?? "-",
  String(rescue.attempts ?? 0),
  oneLine(rescue.lastError ?? rescue.message),
];

const lineOf = ({ operation, sandbox, at, message }: LostWork): string =>
  `LOST ${operation} of Sandbox ${sandbox.name} at ${at}: ${oneLine(message)} (discard it to take note)`;

/** The last column is as long as it is. */
function aligned(rows: readonly (readonly string[])[]): string[] {
  const widths = HEAD.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows.map((row) =>
    row.map((cell, column) => (column === row.length - 1 ? cell : cell.padEnd(widths[column] ?? 0))).join("   "),
  );
}

/** What a server says is no terminal control. */
const oneLine = (text: string): string => text.replace(/\p{Cc}+/gu, " ");
