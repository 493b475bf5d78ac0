/** Numbers that follow from a seed (mulberry32): the same seed, the same numbers, on every machine. */
export interface Random {
  /** 0 ≤ x < 1. */
  next(): number;
  /** A whole number, 0 ≤ n < limit. */
  below(limit: number): number;
  /** One of them, each with the share of its weight. */
  pick<T>(among: readonly { readonly weight: number; readonly value: T }[]): T;
  /** An independent sequence that follows from this seed and a name. */
  fork(name: string): Random;
}

export function seeded(seed: number): Random {
  let state = seed >>> 0;
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  return {
    next,
    below: (limit) => Math.floor(next() * limit),
    pick(among) {
      let left = next() * among.reduce((sum, { weight }) => sum + weight, 0);
      for (const { weight, value } of among) {
        left -= weight;
        if (left < 0) return value;
      }
      const last = among.at(-1);
      if (last === undefined) throw new RangeError("nothing to pick from");
      return last.value;
    },
    fork: (name) =>
      seeded([...name].reduce((hash, letter) => Math.imul(hash ^ letter.charCodeAt(0), 0x01000193), seed)),
  };
}
