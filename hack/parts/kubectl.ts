/** What kubectl says in the end: discovery repeats each failure in lines of its own log before that. */
export const kubectlSaid = (stderr: string): string =>
  stderr
    .split("\n")
    .filter((line) => !/^[EW]\d{4} .*memcache\.go:\d+\]/.test(line))
    .join("\n")
    .trim();

/**
 * The command line of kubectl on a cluster. A cache directory that cannot be made is done without: kubectl's own, below
 * ~/.kube/cache, would stay behind, and would remember the kinds of a cluster that is gone.
 */
export const kubectlWords = (kubeconfigPath: string, ...words: readonly string[]): string[] => [
  "kubectl",
  "--kubeconfig",
  kubeconfigPath,
  "--cache-dir",
  "/dev/null",
  ...words,
];
