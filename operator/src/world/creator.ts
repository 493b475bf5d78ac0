/** Who did it (DESIGN §4.10): the stamp that admission writes and nobody can forge. */
import { type CausedBy, causedByUser } from "@agentworlds/crds";
import { z } from "zod";

/** JSON annotation stamped at admission from the authenticated user. */
export const CREATED_BY = "agentworlds.dev/created-by";

const stamp = z.object({ user: z.string(), agent: z.string().optional(), conversation: z.string().optional() });

/** Named when an object carries no readable stamp: admission policies were not installed when it was created. */
export const UNKNOWN_CREATOR: CausedBy = { user: "system:unknown" };

interface Stamped {
  readonly metadata: { readonly annotations?: Readonly<Record<string, string>> };
}

/** Who asked for something about an object: of its creator the stamp says more than the name. */
export function askedBy(user: string, object: Stamped): CausedBy {
  const creator = creatorOf(object);
  return creator.user === user ? creator : causedByUser(user);
}

export function creatorOf(object: Stamped): CausedBy {
  const raw = object.metadata.annotations?.[CREATED_BY];
  if (raw === undefined) return UNKNOWN_CREATOR;
  const parsed = stamp.safeParse(parseJson(raw));
  if (!parsed.success) return UNKNOWN_CREATOR;
  const { user, agent, conversation } = parsed.data;
  return {
    user,
    ...(agent === undefined || agent === "" ? {} : { agent }),
    ...(conversation === undefined || conversation === "" ? {} : { conversation }),
  };
}

function parseJson(raw: string): unknown {
  try {
    return JSON.parse(raw);
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}
