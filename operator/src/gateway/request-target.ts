/**
 * Splits the raw request target of an HTTP request. No URL parser is used on purpose: kube-apiserver authorises
 * `sandboxes/a/files` and forwards `..` uncleaned, and a URL parser would collapse it behind the authorisation's back
 * (seen: a user was served another namespace's Sandbox). Whatever could name another object than the one that was
 * authorised is refused here, before routing.
 */
export type SplitTarget =
  | { readonly kind: "split"; readonly segments: readonly string[]; readonly query: Query }
  | { readonly kind: "refused"; readonly code: "BadPath" | "BadQuery"; readonly message: string };

/** Query parameters by name; values are bytes, because a path inside a container need not be UTF-8. */
export type Query = ReadonlyMap<string, readonly Uint8Array[]>;

/** The target as it stands on the request line, for example `/apis/x?path=%2Fetc`. */
export function splitTarget(raw: string): SplitTarget {
  if (!raw.startsWith("/")) return badPath("the request target must begin with /");
  if (raw.includes("#")) return badPath("a fragment is not part of a request target");
  const mark = raw.indexOf("?");
  const path = mark < 0 ? raw : raw.slice(0, mark);
  const segments: string[] = [];
  if (path !== "/") {
    for (const part of path.slice(1).split("/")) {
      const segment = readSegment(part);
      if (segment === undefined) {
        return badPath("empty, '.' and '..' segments and encoded separators are refused, however they are encoded");
      }
      segments.push(segment);
    }
  }
  const query = mark < 0 ? new Map() : readQuery(raw.slice(mark + 1));
  if (typeof query === "string") return { kind: "refused", code: "BadQuery", message: query };
  return { kind: "split", segments, query };
}

/** The single value of a parameter; `undefined` when it is absent; throws nothing: twice is reported as "repeated". */
export function singleValue(query: Query, name: string): Uint8Array | undefined | "repeated" {
  const values = query.get(name);
  if (values === undefined) return undefined;
  return values.length === 1 ? values[0] : "repeated";
}

const badPath = (message: string): SplitTarget => ({ kind: "refused", code: "BadPath", message });

/** The segment decoded once, or `undefined` when any depth of decoding makes it dangerous. */
function readSegment(raw: string): string | undefined {
  const once = percentDecode(raw, { plusIsSpace: false });
  if (once === undefined) return undefined;
  // Every further hop may decode once more. Each decoding shortens the text, so this ends.
  let text: string | undefined = raw;
  while (text !== undefined) {
    if (text === "" || text === "." || text === ".." || /[/\\\0]/.test(text)) return undefined;
    const bytes = percentDecode(text, { plusIsSpace: false });
    const next = bytes === undefined ? undefined : Buffer.from(bytes).toString("latin1");
    if (next === text) break;
    text = next;
  }
  return utf8(once);
}

/**
 * `a=b&c=d` by form rules: kube-apiserver decodes the query and writes it anew with `+` for a space, so a literal plus
 * must travel as %2B. Go drops every pair that holds a raw `;` in silence; here it is an error.
 */
function readQuery(raw: string): Query | string {
  if (raw.includes(";")) return "a raw ';' is dropped by some hops together with its parameter: write %3B";
  const query = new Map<string, Uint8Array[]>();
  for (const pair of raw.split("&")) {
    if (pair === "") continue;
    const equals = pair.indexOf("=");
    const nameBytes = percentDecode(equals < 0 ? pair : pair.slice(0, equals), { plusIsSpace: true });
    const value = percentDecode(equals < 0 ? "" : pair.slice(equals + 1), { plusIsSpace: true });
    const name = nameBytes === undefined ? undefined : utf8(nameBytes);
    if (name === undefined || value === undefined) return "the query holds a malformed percent-encoding";
    const values = query.get(name);
    if (values === undefined) query.set(name, [value]);
    else values.push(value);
  }
  return query;
}

/** Bytes of a percent-encoded text; `undefined` for a `%` that two hexadecimal digits do not follow. */
function percentDecode(text: string, options: { plusIsSpace: boolean }): Uint8Array | undefined {
  const bytes: number[] = [];
  for (let at = 0; at < text.length; at++) {
    const char = text.charCodeAt(at);
    if (char === 0x25) {
      const hex = text.slice(at + 1, at + 3);
      if (!/^[0-9a-fA-F]{2}$/.test(hex)) return undefined;
      bytes.push(Number.parseInt(hex, 16));
      at += 2;
    } else if (char === 0x2b && options.plusIsSpace) bytes.push(0x20);
    // Node hands the request line over as latin1: one character is one byte.
    else if (char > 0xff) return undefined;
    else bytes.push(char);
  }
  return Uint8Array.from(bytes);
}

function utf8(bytes: Uint8Array): string | undefined {
  const text = Buffer.from(bytes).toString("utf8");
  // Overlong and cut sequences decode to U+FFFD and would not come back as the same bytes.
  return Buffer.from(text, "utf8").equals(bytes) ? text : undefined;
}
