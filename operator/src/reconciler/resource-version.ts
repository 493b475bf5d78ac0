/**
 * True when `candidate` is at or before `position`. Kubernetes makes resourceVersions of one resource comparable as decimal
 * numbers of any length (KEP-5504); anything else counts as newer, so that an unknown scheme loses no event.
 */
export function isAtOrBefore(candidate: string, position: string): boolean {
  if (!DECIMAL.test(candidate) || !DECIMAL.test(position)) return false;
  if (candidate.length !== position.length) return candidate.length < position.length;
  return candidate <= position;
}

const DECIMAL = /^[1-9][0-9]*$/;
