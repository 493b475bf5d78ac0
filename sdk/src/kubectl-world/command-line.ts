/** What was asked for on the command line. */
import { parseArgs } from "node:util";

export type Command =
  | { readonly kind: "help"; readonly problem?: string }
  | { readonly kind: "list"; readonly world: string }
  | { readonly kind: "retry"; readonly world: string; readonly operation: string | undefined }
  | {
      readonly kind: "export";
      readonly world: string;
      readonly operation: string | undefined;
      /** Path of a file, `-` for stdout; undefined: an image in the registry. */
      readonly tar: string | undefined;
    }
  | { readonly kind: "discard"; readonly world: string; readonly operation: string };

export interface CommandLine {
  readonly command: Command;
  readonly output: "text" | "json";
  readonly access: {
    readonly kubeconfig?: string;
    readonly context?: string;
    readonly namespace?: string;
  };
  readonly timeoutMs?: number;
}

export const HELP = `kubectl world: what kubectl does not know about Worlds

  kubectl world rescue list    WORLD                        work that is kept because it could not be published
  kubectl world rescue retry   WORLD [OPERATION]            try to publish it now
  kubectl world rescue export  WORLD [OPERATION]            push it beside the lineage; prints the image
  kubectl world rescue export  WORLD [OPERATION] --tar FILE stream its filesystem past the registry; - is stdout
  kubectl world rescue discard WORLD OPERATION              give it up for good

Without OPERATION the World must have exactly one rescue.

  -n, --namespace NAMESPACE   -o, --output text|json   --timeout SECONDS
      --kubeconfig FILE           --context CONTEXT
`;

const OPTIONS = {
  namespace: { type: "string", short: "n" },
  kubeconfig: { type: "string" },
  context: { type: "string" },
  output: { type: "string", short: "o" },
  timeout: { type: "string" },
  tar: { type: "string" },
  help: { type: "boolean", short: "h" },
} as const;

/** Never throws: what cannot be understood is the help, with what is wrong. */
export function readCommandLine(args: readonly string[]): CommandLine {
  try {
    const { values, positionals } = parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true });
    const { namespace, kubeconfig, context, output = "text" } = values;
    const seconds = values.timeout === undefined ? undefined : Number(values.timeout);
    if (output !== "text" && output !== "json") return needsHelp(`--output is text or json, not ${output}`);
    if (seconds !== undefined && !(seconds > 0)) return needsHelp("--timeout is a number of seconds above zero");
    return {
      command: values.help ? { kind: "help" } : commandIn(positionals, values.tar),
      output,
      access: {
        ...(namespace === undefined ? {} : { namespace }),
        ...(kubeconfig === undefined ? {} : { kubeconfig }),
        ...(context === undefined ? {} : { context }),
      },
      ...(seconds === undefined ? {} : { timeoutMs: seconds * 1_000 }),
    };
  } catch (error) {
    return needsHelp(error instanceof Error ? error.message : String(error));
  }
}

const needsHelp = (problem: string): CommandLine => ({
  command: { kind: "help", problem },
  output: "text",
  access: {},
});

function commandIn([subject, verb, world, operation, ...more]: readonly string[], tar: string | undefined): Command {
  const help = (problem: string): Command => ({ kind: "help", problem });
  if (subject === undefined) return { kind: "help" };
  if (subject !== "rescue") return help(`unknown: ${subject}`);
  if (more.length > 0) return help(`more than is understood: ${more.join(" ")}`);
  if (tar !== undefined && verb !== "export") return help("--tar belongs to export");
  if (world === undefined)
    return help(verb === undefined ? "rescue needs a verb" : `${verb} needs the name of a World`);
  switch (verb) {
    case "list":
      return operation === undefined ? { kind: "list", world } : help("list takes the name of a World only");
    case "retry":
      return { kind: "retry", world, operation };
    case "export":
      return { kind: "export", world, operation, tar };
    case "discard":
      return operation === undefined
        ? help("discard needs the operation: it cannot be undone, so it is never guessed")
        : { kind: "discard", world, operation };
    default:
      return help(`unknown: rescue ${verb}`);
  }
}
