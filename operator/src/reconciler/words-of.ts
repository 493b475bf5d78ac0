/**
 * What an error says, never nothing: Node tells a connection that failed at several addresses as an AggregateError without a
 * message, whose errors have one each.
 */
export function wordsOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error.message !== "") return error.message;
  const inner: unknown[] = error instanceof AggregateError ? error.errors : [];
  const words = [...new Set(inner.slice(0, MOST_TOLD).map(wordsOf))];
  if (words.length > 0) return words.join("; ");
  return "code" in error && typeof error.code === "string" ? error.code : error.name;
}

const MOST_TOLD = 8;
