import type { KubeObject } from "../reconciler/list-watch.ts";
import type { ResourceClient } from "./contract.ts";

const PAGE = 500;

/** Every object of a type, read afresh, page by page. */
export async function listAll<T extends KubeObject>(
  client: Pick<ResourceClient<T>, "list">,
  { namespace, signal }: { readonly namespace?: string; readonly signal: AbortSignal },
): Promise<T[]> {
  const found: T[] = [];
  let continueToken: string | undefined;
  do {
    const page = await client.list({
      limit: PAGE,
      signal,
      ...(namespace === undefined ? {} : { namespace }),
      ...(continueToken === undefined ? {} : { continueToken }),
    });
    found.push(...page.items);
    continueToken = page.continueToken;
  } while (continueToken !== undefined && continueToken !== "");
  return found;
}
