import { z } from "zod";
import { place } from "./answer.ts";
import { RegistryError } from "./errors.ts";
import type { RepositoryPaths } from "./paths.ts";
import type { Transport } from "./transport.ts";

const LONGEST_PAGE = 16 * 1024 * 1024;
/** More pages than any registry of ours can have: the registry's paging does not end. */
const MOST_PAGES = 10_000;

const pageSchema = z.object({ tags: z.array(z.string()).nullish() });

/** What is listed. */
export interface TagListing {
  readonly paths: RepositoryPaths;
  readonly perPage: number;
  readonly signal: AbortSignal;
}

/**
 * Every tag of a repository. Empty only when the registry lists none, or says 404 with the code NAME_UNKNOWN: any other
 * failure, also one in the middle of the paging, throws. A listing that failed must never look like an empty one.
 */
export async function listTags(transport: Transport, listing: TagListing): Promise<string[]> {
  const tags = new Set<string>();
  const seen = new Set<string>();
  let next: URL | undefined = listing.paths.tags(listing.perPage);
  while (next !== undefined) {
    if (seen.has(next.href) || seen.size === MOST_PAGES) throw malformed(next, "the list of tags does not end");
    seen.add(next.href);
    const page: Page | "unknown" = await readPage(transport, listing, next);
    if (page === "unknown") {
      if (seen.size === 1) return [];
      throw malformed(next, "the repository vanished while its tags were listed");
    }
    for (const tag of page.tags) tags.add(tag);
    next = page.next;
  }
  return [...tags];
}

interface Page {
  readonly tags: readonly string[];
  readonly next: URL | undefined;
}

async function readPage(transport: Transport, listing: TagListing, url: URL): Promise<Page | "unknown"> {
  const { paths, signal } = listing;
  const scopes = [{ repository: paths.repository, actions: ["pull"] }] as const;
  await using answer = await transport.send({ method: "GET", url, scopes, repeat: "Always", kind: "Call", signal });
  if (answer.status !== 200) {
    const failure = await answer.failure("list tags");
    if (failure.status === 404 && failure.reasons.includes("NAME_UNKNOWN")) return "unknown";
    throw failure;
  }
  const { tags } = await answer.json(pageSchema, LONGEST_PAGE, "the list of tags");
  const link = nextLink(answer.headers("link"));
  if (link === undefined) return { tags: tags ?? [], next: undefined };
  const next = URL.canParse(link, url.href) ? new URL(link, url) : undefined;
  if (
    next === undefined ||
    next.origin !== transport.origin.origin ||
    next.pathname !== paths.tags(listing.perPage).pathname
  ) {
    throw malformed(url, "the next page of tags is not of this repository");
  }
  return { tags: tags ?? [], next };
}

/** The target of the first link with `rel=next` (RFC 8288), as written. */
export function nextLink(headers: readonly string[]): string | undefined {
  for (const header of headers) {
    for (const [, target = "", parameters = ""] of header.matchAll(
      /<([^>]*)>((?:\s*;\s*[\w*]+(?:=(?:"[^"]*"|[^",;\s]*))?)*)/g,
    )) {
      const relation = /;\s*rel=(?:"([^"]*)"|([^",;\s]*))/i.exec(parameters);
      const names = (relation?.[1] ?? relation?.[2] ?? "").toLowerCase().split(/\s+/);
      if (names.includes("next")) return target;
    }
  }
  return undefined;
}

const malformed = (url: URL, because: string): RegistryError =>
  new RegistryError("Malformed", `${place(url)}: ${because}`);
