/** What a shell still has of `eval "$(make up)"` when those parts have ended: it names nothing any more. */
import { join } from "node:path";
import { files } from "./control-plane-flags.ts";
import { type LocalPaths, runningParts } from "./local.ts";

/** Which of these variables name the parts of this directory, as a command line lists them. No I/O. */
export function ownVariables(env: NodeJS.ProcessEnv, { directory }: Pick<LocalPaths, "directory">): string[] {
  const own: Readonly<Record<string, string>> = {
    DOCKER_HOST: `unix://${join(directory, "engine", "docker.sock")}`,
    KUBECONFIG: join(directory, "control-plane", files.adminKubeconfig),
  };
  return Object.keys(own).filter((name) => env[name] === own[name]);
}

/** Drops them from this process and what it starts, unless those parts are up; says so on stderr. */
export async function forgetEndedParts(paths: LocalPaths): Promise<void> {
  const names = ownVariables(process.env, paths);
  if (names.length === 0 || (await runningParts(paths)) !== undefined) return;
  for (const name of names) delete process.env[name];
  process.stderr.write(
    `${names.join(" and ")} of this shell name what \`make up\` started in ${paths.directory}, which has ended, and are not used: unset ${names.join(" ")}\n`,
  );
}
