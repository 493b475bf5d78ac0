/** Who makes a request, as authenticated. */
export interface Identity {
  readonly user: string;
  readonly uid: string | undefined;
  readonly groups: readonly string[];
  readonly extra: Readonly<Record<string, readonly string[]>>;
  /**
   * `Proxied`: kube-apiserver authenticated the caller and authorised verb and subresource before it forwarded.
   * `Direct`: the caller reached this gateway itself and nothing has been authorised yet.
   */
  readonly via: "Proxied" | "Direct";
}

/** A text that two identities share only if every decision about them is the same. */
export const identityKey = (identity: Identity): string =>
  JSON.stringify([identity.user, identity.uid ?? "", identity.groups, Object.entries(identity.extra).sort(byName)]);

const byName = (left: readonly [string, unknown], right: readonly [string, unknown]): number =>
  left[0] < right[0] ? -1 : left[0] > right[0] ? 1 : 0;
