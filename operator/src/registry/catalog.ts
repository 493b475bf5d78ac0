import { z } from "zod";
import { place } from "./answer.ts";
import { RegistryError } from "./errors.ts";
import { nextLink } from "./tags.ts";
import type { Transport } from "./transport.ts";

const LONGEST_PAGE = 16 * 1024 * 1024;
/** More pages than any registry of ours can have: the registry's paging does not end. */
const MOST_PAGES = 10_000;
/** Answers of a registry that offers no catalog. The distribution specification does not ask for one. */
const NOT_OFFERED = new Set([404, 405, 501]);

const pageSchema = z.object({ repositories: z.array(z.string()).nullish() });

/** What is listed. */
export interface CatalogListing {
  /** Repositories whose names begin so. */
  readonly prefix: string;
  readonly perPage: number;
  readonly signal: AbortSignal;
}

/**
 * Every repository whose name begins with the prefix. The listing starts right before it (`last`) and ends as soon as the
 * registry's own order shows that no more can come; a registry that keeps neither is read to its end. `NoCatalog`: it offers
 * none. Any other failure throws, also one in the middle of the paging: it must never look like "there are none".
 */
export async function listCatalog(
  transport: Transport,
  listing: CatalogListing,
): Promise<readonly string[] | "NoCatalog"> {
  const { prefix, perPage } = listing;
  const first = new URL(`/v2/_catalog?${new URLSearchParams({ n: String(perPage), last: prefix })}`, transport.origin);
  const found = new Set<string>();
  const seen = new Set<string>();
  let next: URL | undefined = first;
  while (next !== undefined) {
    if (seen.has(next.href) || seen.size === MOST_PAGES) throw malformed(next, "the catalog does not end");
    seen.add(next.href);
    const page: Page | "NoCatalog" = await readPage(transport, listing, next);
    if (page === "NoCatalog") {
      if (seen.size === 1) return page;
      throw malformed(next, "the catalog vanished while it was listed");
    }
    for (const name of page.names) if (name.startsWith(prefix)) found.add(name);
    next = isPast(page.names, prefix) ? undefined : page.next;
  }
  return [...found];
}

/** Orders in which registries list: by text, or folder by folder, where `/` comes before everything. */
const ORDERS: readonly ((name: string) => string)[] = [(name) => name, (name) => name.replaceAll("/", "\0")];

/** Whether no name with the prefix can follow: the page begins after it, is in order, and has gone beyond it, in every order. */
export function isPast(names: readonly string[], prefix: string): boolean {
  const last = names.at(-1);
  if (last === undefined || last.startsWith(prefix)) return false;
  return ORDERS.every((key) => {
    const keys = [prefix, ...names].map(key);
    return keys.every((name, index) => index === 0 || name > (keys[index - 1] ?? ""));
  });
}

interface Page {
  readonly names: readonly string[];
  readonly next: URL | undefined;
}

async function readPage(transport: Transport, { signal }: CatalogListing, url: URL): Promise<Page | "NoCatalog"> {
  const scopes = [{ catalog: "*" }] as const;
  await using answer = await transport.send({ method: "GET", url, scopes, repeat: "Always", kind: "Call", signal });
  if (NOT_OFFERED.has(answer.status)) return "NoCatalog";
  if (answer.status !== 200) throw await answer.failure("list repositories");
  const { repositories } = await answer.json(pageSchema, LONGEST_PAGE, "the catalog");
  const names = repositories ?? [];
  const link = nextLink(answer.headers("link"));
  if (link === undefined) return { names, next: undefined };
  const next = URL.canParse(link, url.href) ? new URL(link, url) : undefined;
  if (next === undefined || next.origin !== transport.origin.origin || next.pathname !== "/v2/_catalog") {
    throw malformed(url, "the next page of the catalog is elsewhere");
  }
  return { names, next };
}

const malformed = (url: URL, because: string): RegistryError =>
  new RegistryError("Malformed", `${place(url)}: ${because}`);
