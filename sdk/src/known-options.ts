import { ConfigurationError } from "./errors.ts";

/** Every option of a call by its name; the compiler notices one that is missing here. */
export type OptionNames<Options> = Readonly<Record<keyof Options, true>>;

/**
 * Refuses an option that the call does not know: swallowed, a misspelt `ttlSecond` would be a session of another length.
 * TypeScript says so where it is written; a program in JavaScript gets it here.
 */
export function refuseUnknown<Options extends object>(
  call: string,
  options: Options,
  known: OptionNames<Options>,
): void {
  const unknown = Object.keys(options).filter((name) => !Object.hasOwn(known, name));
  if (unknown.length === 0) return;
  throw new ConfigurationError({
    code: "UnknownOption",
    message: `${call} has no option ${unknown.map((name) => JSON.stringify(name)).join(", ")}`,
    remediation: `its options are ${Object.keys(known).sort().join(", ")}`,
  });
}
