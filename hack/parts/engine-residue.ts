import { callEngine, expectSuccess } from "./engine-api.ts";

/** What the product leaves on an engine on purpose, for the next session: helper, network, images of versions. */
interface Found {
  readonly containers: ReadonlySet<string>;
  readonly volumes: ReadonlySet<string>;
  readonly networks: ReadonlySet<string>;
  readonly images: ReadonlySet<string>;
}

const OURS = /^\/?(agentworlds[-/]|aw-)/;

/**
 * Remembers what an engine that is not ours holds now. Dispose removes what the product has added since: on somebody's machine
 * a demo or a test run leaves nothing behind. What another installation uses is in use, refused by the engine, and stays.
 */
export async function rememberEngine(
  dockerHost: string,
  options: { registryHost: string; signal: AbortSignal },
): Promise<AsyncDisposable> {
  const before = await look(dockerHost, options.registryHost, options.signal);
  return {
    async [Symbol.asyncDispose]() {
      const signal = AbortSignal.timeout(60_000);
      const after = await look(dockerHost, options.registryHost, signal);
      for (const [kind, path] of [
        ["containers", (name: string) => `/containers/${name}?force=1&v=1`],
        ["volumes", (name: string) => `/volumes/${name}`],
        ["networks", (name: string) => `/networks/${name}`],
        ["images", (name: string) => `/images/${encodeURIComponent(name)}`],
      ] as const) {
        for (const name of after[kind]) {
          // A refusal (409: in use) leaves it to whoever uses it.
          if (!before[kind].has(name)) await callEngine(dockerHost, { method: "DELETE", path: path(name), signal });
        }
      }
    },
  };
}

async function look(dockerHost: string, registryHost: string, signal: AbortSignal): Promise<Found> {
  const get = async <T>(path: string): Promise<T> =>
    JSON.parse(expectSuccess(path, await callEngine(dockerHost, { path, signal })));
  const containers = await get<{ Names: string[]; Image: string }[]>("/containers/json?all=1");
  const { Volumes } = await get<{ Volumes: { Name: string }[] | null }>("/volumes");
  const networks = await get<{ Name: string }[]>("/networks");
  const images = await get<{ RepoTags: string[] | null; RepoDigests: string[] | null }[]>("/images/json");
  // A session's container is of this run when its image is of this run's registry, or has lost its name with that; one of
  // another registry belongs to a run beside this one.
  const isOfThisRun = (image: string): boolean => image.startsWith(`${registryHost}/`) || !image.includes("/");
  const isOurs = (name: string): boolean => OURS.test(name) || name.startsWith(`${registryHost}/`);
  return {
    containers: new Set(
      containers
        .filter(({ Names, Image }) => !Names[0]?.startsWith("/aw-") || isOfThisRun(Image))
        .flatMap(({ Names }) => Names.slice(0, 1))
        .filter(isOurs)
        .map((name) => name.slice(1)),
    ),
    volumes: new Set((Volumes ?? []).map(({ Name }) => Name).filter(isOurs)),
    networks: new Set(networks.map(({ Name }) => Name).filter(isOurs)),
    images: new Set(
      images.flatMap(({ RepoTags, RepoDigests }) => [...(RepoTags ?? []), ...(RepoDigests ?? [])]).filter(isOurs),
    ),
  };
}
