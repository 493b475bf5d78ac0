/** One challenge of a `WWW-Authenticate` header; scheme and parameter names in lower case. */
export interface Challenge {
  readonly scheme: string;
  readonly parameters: ReadonlyMap<string, string>;
}

/** A scheme alone, or followed by its first parameter; a bare token68 after the scheme is read past. */
const SCHEME = /\s*,*\s*([!#$%&'*+.^_`|~\w-]+)(?:\s+|\s*(?=,|$))(?![\s]*=)/y;
const PARAMETER = /\s*,*\s*([!#$%&'*+.^_`|~\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([!#$%&'*+.^_`|~\w:/?@-]+))\s*(?=,|$)/y;
const TOKEN68 = /\s*[\w.~+/-]+=*\s*(?=,|$)/y;

/**
 * The challenges of one or more headers, in order (RFC 9110 §11.6.1). What does not follow the grammar ends the reading
 * of that header: the challenges before it stand.
 */
export function parseChallenges(headers: readonly string[]): Challenge[] {
  return headers.flatMap(parseHeader);
}

function parseHeader(header: string): Challenge[] {
  const challenges: { scheme: string; parameters: Map<string, string> }[] = [];
  let position = 0;
  const take = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = position;
    const match = pattern.exec(header);
    if (match !== null) position = pattern.lastIndex;
    return match;
  };
  while (position < header.length) {
    const parameter = take(PARAMETER);
    const current = challenges.at(-1);
    if (parameter !== null) {
      if (current === undefined) return challenges;
      const [, name = "", quoted, token = ""] = parameter;
      current.parameters.set(name.toLowerCase(), quoted?.replace(/\\(.)/g, "$1") ?? token);
      continue;
    }
    const scheme = take(SCHEME);
    if (scheme !== null) {
      challenges.push({ scheme: (scheme[1] ?? "").toLowerCase(), parameters: new Map() });
      continue;
    }
    if (current === undefined || current.parameters.size > 0 || take(TOKEN68) === null) return challenges;
  }
  return challenges;
}
