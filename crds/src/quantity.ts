/**
 * Kubernetes quantities, as far as the kinds use them: amounts of CPU and memory. A plain number is whole units; a string
 * may have a decimal suffix (m, k, M, G, T, P), a binary one (Ki, Mi, Gi, Ti, Pi) or an exponent (1e3).
 */
export type Quantity = string | number;

const SHAPE = /^\+?(\d+(?:\.\d*)?|\.\d+)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,3}))?$/;

const FACTORS: Readonly<Record<string, number>> = {
  n: 1e-9,
  u: 1e-6,
  m: 1e-3,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  E: 1e18,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  Pi: 2 ** 50,
  Ei: 2 ** 60,
};

/** Thrown for text that is no quantity. The API server refuses it at admission, so this is a programming error. */
export class InvalidQuantity extends Error {
  override readonly name = "InvalidQuantity";
  constructor(value: Quantity) {
    super(`${JSON.stringify(value)} is not a quantity such as 500m, 2 or 2Gi`);
  }
}

/** The amount in base units. Throws `InvalidQuantity`. */
function parseQuantity(value: Quantity): number {
  if (typeof value === "number") return value;
  const [, digits, suffix, exponent] = SHAPE.exec(value) ?? [];
  if (digits === undefined) throw new InvalidQuantity(value);
  const factor = suffix === undefined ? 10 ** Number(exponent ?? 0) : (FACTORS[suffix] ?? Number.NaN);
  return Number(digits) * factor;
}

/** An amount of memory in bytes, rounded up to a whole one. Throws `InvalidQuantity`. */
export const quantityToBytes = (value: Quantity): number => Math.ceil(parseQuantity(value));

/** An amount of CPU in cores; 0.5 for `500m`. Throws `InvalidQuantity`. */
export const quantityToCpus = (value: Quantity): number => parseQuantity(value);

/** True for a quantity above zero. */
export const isQuantity = (value: Quantity): boolean =>
  typeof value === "number" ? value > 0 : SHAPE.test(value) && parseQuantity(value) > 0;
