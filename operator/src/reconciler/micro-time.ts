/**
 * `metav1.MicroTime` of an epoch millisecond: exactly six fractional digits. With JavaScript's three the API server refuses
 * a Lease, so that no leader is ever elected while every pod looks healthy (agentconnect-md/agentconnect#873).
 */
export function microTime(epochMs: number): string {
  return new Date(epochMs).toISOString().replace(/\.(\d{3})Z$/, ".$1000Z");
}
