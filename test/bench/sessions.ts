/**
 * `make bench`: create→Ready, exec round trip and hibernation beside the bare Engine API doing the same steps, interleaved in
 * one run. Ends with one line of JSON on stdout and writes it to bench-results.json. Machines are noisy: read the ratios.
 */
import { writeFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { startOperator } from "../../hack/parts/operator.ts";
import { AgentWorlds } from "../../sdk/src/index.ts";
import { Stage } from "../kit/stage.ts";
import { BareEngine } from "./bare-engine.ts";

const { values } = parseArgs({
  options: { rounds: { type: "string", default: "12" }, execs: { type: "string", default: "100" } },
});
const rounds = Number(values.rounds);
const execs = Number(values.execs);

await using stage = await Stage.open();
await using _operator = await startOperator({
  kubeconfigPath: stage.site.ground.kubeconfigPath,
  registryUrl: stage.site.ground.registryUrl,
  signal: stage.site.signal,
});
await using bare = new BareEngine(stage.site.ground.dockerHost);
await using worlds = new AgentWorlds({ kubeconfig: stage.site.ground.kubeconfigPath, namespace: stage.namespace });
const world = await stage.readyWorld(undefined, { retention: { keepVersions: 3, pinned: [] } });
const repository = new URL(stage.site.ground.registryUrl).host;

const boots: Pair[] = [];
const commands: Pair[] = [];
const hibernations: Pair[] = [];
for (let round = 0; round < rounds + 1; round++) {
  const head = (await stage.world(world)).status.head?.image ?? "";
  // The first round warms caches, images and connections on both sides.
  const counts = round > 0;
  await warm(head);
  const engineBoot = await timed(() => bare.boot(head));
  const ourBoot = await timed(() => worlds.sandboxes.create({ world: world.metadata.name, ttlSeconds: 600 }));
  if (counts) boots.push({ ours: ourBoot.seconds, engine: engineBoot.seconds });
  const container = engineBoot.result;
  const session = ourBoot.result;
  for (let turn = 0; turn < Math.ceil(execs / rounds); turn++) {
    const engine = await timed(() => bare.exec(container, ["true"]));
    const ours = await timed(() => session.exec(["true"]));
    if (counts) commands.push({ ours: ours.seconds, engine: engine.seconds });
  }
  const megabyte = ["sh", "-c", "head -c 1000000 /dev/urandom > /tmp/changed"];
  await bare.exec(container, megabyte);
  await session.exec(megabyte);
  const tag = `bench-${round}`;
  const engine = await timed(() => bare.commitAndPush(container, `${repository}/bench/bare`, tag));
  await bare.removeImage(`${repository}/bench/bare:${tag}`);
  const ours = await timed(() => session.close());
  if (counts) hibernations.push({ ours: ours.seconds, engine: engine.seconds });
}

const results = {
  bootCached: {
    seconds: median(boots, "ours"),
    engineSeconds: median(boots, "engine"),
    moreMs: Math.round((median(boots, "ours") - median(boots, "engine")) * 1000),
  },
  execRoundTrip: {
    ms: round1(median(commands, "ours") * 1000),
    engineMs: round1(median(commands, "engine") * 1000),
    ratio: round1(median(commands, "ours") / median(commands, "engine")),
    moreMs: round1((median(commands, "ours") - median(commands, "engine")) * 1000),
  },
  hibernate1MB: {
    seconds: median(hibernations, "ours"),
    commitPushSeconds: median(hibernations, "engine"),
    ratio: round1(median(hibernations, "ours") / median(hibernations, "engine")),
  },
  rounds,
};
await writeFile("bench-results.json", `${JSON.stringify(results, undefined, 2)}\n`);
process.stdout.write(`${JSON.stringify(results)}\n`);

/** Seconds of one step on both sides. */
interface Pair {
  readonly ours: number;
  readonly engine: number;
}

async function timed<R>(step: () => Promise<R>): Promise<{ seconds: number; result: R }> {
  const startedAt = performance.now();
  const result = await step();
  return { seconds: (performance.now() - startedAt) / 1000, result };
}

/** The image is on the host before either side boots it. */
async function warm(image: string): Promise<void> {
  await stage.driver.pull(image, undefined, stage.site.signal);
}

function median(pairs: readonly Pair[], side: keyof Pair): number {
  const sorted = pairs.map((pair) => pair[side]).sort((a, b) => a - b);
  return Math.round((sorted[Math.floor(sorted.length / 2)] ?? Number.NaN) * 10_000) / 10_000;
}

function round1(value: number): number {
  return Math.round(value * 10) / 10;
}
