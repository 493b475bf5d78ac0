/** Writes of the operator in a span of time, by the API server's own audit log. */
import { isRecord, textAt } from "./http.ts";

const WRITE = /^(create|update|patch|delete)/;

/** Leases are heartbeats; a review writes nothing. */
const NO_WRITES = /^(leases|\w+reviews)$/;

/** One sentence per write whose user agent begins with `agent`. */
export function writesIn(log: string, span: { from: number; to: number; agent: string }): string[] {
  return log.split("\n").flatMap((line) => {
    if (!line.endsWith("}")) return [];
    const event: unknown = JSON.parse(line);
    if (!isRecord(event)) return [];
    const time = Date.parse(textAt(event, "requestReceivedTimestamp") ?? "");
    const verb = textAt(event, "verb") ?? "";
    const isOurs = textAt(event, "userAgent")?.startsWith(span.agent) === true;
    const counts = WRITE.test(verb) && !NO_WRITES.test(textAt(event, "objectRef", "resource") ?? "");
    if (!isOurs || !counts || !(time >= span.from && time < span.to)) return [];
    return [`${verb} ${textAt(event, "requestURI")}`];
  });
}
