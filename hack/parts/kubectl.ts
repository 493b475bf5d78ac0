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
