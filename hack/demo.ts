/**
 * The whole product in one story, on real parts: `make demo`. Ends with one line of JSON on stdout; the narration goes to
 * stderr. `KEEP=1` leaves everything running and says how to reach it; `make down` ends it. A cluster that env KUBECONFIG names
 * is used instead of a control plane of our own; sessions then go to the gateway's own endpoint, since that cluster's API server
 * may not reach this machine.
 *   node hack/demo.ts [--directory DIR] [--registry-port PORT] [--image busybox|workbench]
 */
import { mkdir, readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { AgentWorlds, type AgentWorldsOptions, type Session } from "../sdk/src/index.ts";
import { Narrator } from "./narrator.ts";
import { type BaseImageName, isBaseImageName } from "./parts/base-images.ts";
import { runCommandLine, UsageError } from "./parts/command-line.ts";
import { startDemoOperator } from "./parts/demo-operator.ts";
import { partDirectory } from "./parts/directory.ts";
import { callEngine, expectSuccess } from "./parts/engine-api.ts";
import { PartFailed } from "./parts/errors.ts";
import { demoToken, givenKubeconfig, useGivenCluster } from "./parts/given-cluster.ts";
import { startKeeper } from "./parts/keeping.ts";
import { kubectlWords } from "./parts/kubectl.ts";
import {
  DOWN_WITHIN_MS,
  defaultDirectory,
  endParts,
  type LocalPaths,
  localPaths,
  runningParts,
} from "./parts/local.ts";
import { withLock } from "./parts/lock.ts";
import { OPERATOR_NAMESPACE } from "./parts/operator.ts";
import { forgetEndedParts } from "./parts/own-variables.ts";
import { startParts } from "./parts/parts.ts";
import type { PartsFile } from "./parts/parts-file.ts";
import { lastLines, run } from "./parts/process.ts";
import { expectPrepared } from "./parts/requirements.ts";
import { reservePort } from "./parts/reserved-port.ts";
import { exportLines } from "./parts/shell.ts";
import { demo, REGISTRY_PORT } from "./parts/undertakings.ts";
import { eventually } from "./parts/wait.ts";
import { workbenchIsMade } from "./parts/workbench.ts";

const EXAMPLES = join(import.meta.dirname, "..", "examples");
const WITHIN_MS = 40 * 60_000;
const NAMESPACE = "default";

interface Story {
  readonly parts: PartsFile;
  /** What the World is made from. */
  readonly image: BaseImageName;
  readonly narrator: Narrator;
  readonly signal: AbortSignal;
  kubectl(...words: string[]): Promise<string>;
}

/** What is asked for on the command line, and by whom. */
interface Performance {
  readonly narrator: Narrator;
  readonly paths: LocalPaths;
  readonly registryPort: number;
  readonly image: BaseImageName;
  /** A cluster that somebody else runs. */
  readonly kubeconfig: string | undefined;
  readonly signal: AbortSignal;
}

type Ending = Readonly<Record<"version" | "digest", unknown>>;

await runCommandLine(async (words, interrupted) => {
  const { values } = parseArgs({
    args: [...words],
    options: {
      directory: { type: "string", default: defaultDirectory },
      "registry-port": { type: "string", default: String(REGISTRY_PORT) },
      image: { type: "string" },
    },
  });
  const narrator = new Narrator(process.stderr, process.env);
  const paths = localPaths(resolve(values.directory));
  await forgetEndedParts(paths);
  const kubeconfig = givenKubeconfig();
  const image = await imageToUse(values.image);
  const signal = AbortSignal.any([interrupted, AbortSignal.timeout(WITHIN_MS)]);
  const keep = process.env["KEEP"] === "1";
  const cluster = kubeconfig === undefined ? "Own" : "Given";
  await expectPrepared(demo(cluster, image, keep ? paths.directory : undefined), signal);
  const registryPort = Number(values["registry-port"]);
  const performance: Performance = { narrator, paths, registryPort, image, kubeconfig, signal };
  const ended = await (keep ? leaveRunning(performance) : endEverything(performance));
  process.stdout.write(`${JSON.stringify({ ok: true, seconds: Number(narrator.elapsed().toFixed(1)), ...ended })}\n`);
  return 0;
});

/** Only root can make the workbench; what the story needs of it busybox has too. */
async function imageToUse(named: string | undefined): Promise<BaseImageName> {
  if (named !== undefined) {
    if (isBaseImageName(named)) return named;
    throw new UsageError(`--image ${named}: there are busybox and workbench`);
  }
  const isOrdinaryUser = process.getuid?.() !== 0;
  return isOrdinaryUser && !(await workbenchIsMade()) ? "busybox" : "workbench";
}

/** Parts and operator up, the story told, everything down again. */
async function endEverything(performance: Performance): Promise<Ending> {
  const { narrator, registryPort, image, kubeconfig: given, signal } = performance;
  await using undo = new AsyncDisposableStack();
  const toEnd = "wait until it has ended, or end it with Ctrl-C";
  undo.use(await reservePort({ port: registryPort, by: "make demo", toEnd, signal }));
  beginWithParts(performance);
  const directory = undo.use(await partDirectory({ kind: "demo" }));
  const cluster = given === undefined ? undefined : undo.use(await useGivenCluster(given, signal));
  const { file } = undo.use(
    await startParts({
      baseImages: [image],
      registryPort,
      ...(given === undefined ? {} : { kubeconfig: given }),
      signal,
    }),
  );
  sayParts(narrator, file);

  narrator.step("CRDs, admission policies and the operator");
  const operator = undo.use(await startDemoOperator({ parts: file, directory: directory.path, cluster, signal }));
  if (operator.unstamped !== undefined) narrator.say(operator.unstamped);
  const parts = { ...file, operator: operator.running };
  try {
    const ended = await perform(performance, parts);
    narrator.step("kubectl delete");
    const { kubeconfig } = parts.controlPlane;
    await run(kubectlWords(kubeconfig, "delete", "sandbox,world,runtime", "--all", "--timeout=60s"), { signal });
    narrator.step("Everything that was started ends");
    return ended;
  } finally {
    await undo.disposeAsync();
    narrator.end();
  }
}

/** The same on parts and an operator that a process of their own keeps: they stay when the story is told. */
async function leaveRunning(performance: Performance): Promise<Ending> {
  const { narrator, paths, registryPort, image, signal } = performance;
  beginWithParts(performance);
  await mkdir(paths.directory, { recursive: true, mode: 0o700 });
  const parts = await withLock(paths.lock, signal, async () => {
    if ((await runningParts(paths)) !== undefined) {
      throw new PartFailed("demo", `parts are up in ${paths.directory} already: \`make down\` ends them`);
    }
    await endParts(paths, signal);
    return startKeeper({ paths, registryPort, images: [image], by: "make demo" }, signal);
  });
  sayParts(narrator, parts);
  try {
    const ended = await perform(performance, parts);
    narrator.end();
    sayKept(parts, paths);
    return ended;
  } catch (error) {
    narrator.step("Everything that was started ends");
    await endParts(paths, AbortSignal.timeout(DOWN_WITHIN_MS));
    throw error;
  }
}

function beginWithParts({ narrator, image }: Performance): void {
  narrator.step("Local parts: a Kubernetes control plane, a container engine, a registry, a base image");
  if (image !== "busybox") return;
  const why = process.getuid?.() === 0 ? "" : ": only root can make the image workbench";
  narrator.say(`the World is made from busybox${why}`);
}

function sayParts(narrator: Narrator, { controlPlane, engine, registry }: PartsFile): void {
  narrator.say(`kube-apiserver ${controlPlane.url}\nengine         ${engine.dockerHost}`);
  narrator.say(`registry       ${registry.url}`);
}

/** The story; when it breaks off, what the operator said last. */
async function perform({ narrator, image, kubeconfig: given, signal }: Performance, parts: PartsFile): Promise<Ending> {
  const { kubeconfig } = parts.controlPlane;
  const kubectl = (...words: string[]) => run(kubectlWords(kubeconfig, ...words), { signal });
  try {
    const direct = given === undefined ? {} : await directAccess(parts, { kubectl, signal });
    narrator.say(await kubectl("api-resources", "--categories=agentworlds"));
    const story = { parts, image, narrator, signal, kubectl };
    return await tell(story, { kubeconfig, namespace: NAMESPACE, ...direct });
  } catch (error) {
    narrator.say(`the operator's last lines:\n${await lastLines(parts.operator?.log ?? "", 15)}`);
    throw error;
  }
}

/** How the SDK reaches sessions where kube-apiserver cannot reach the gateway. */
async function directAccess(
  { controlPlane, operator }: PartsFile,
  { kubectl, signal }: Pick<Story, "kubectl" | "signal">,
): Promise<Pick<AgentWorldsOptions, "token" | "gateway">> {
  const path = "jsonpath={.data.ca\\.crt}";
  const ca = await kubectl("-n", OPERATOR_NAMESPACE, "get", "secret", "agent-worlds-gateway-tls", "-o", path);
  return {
    token: await demoToken(controlPlane.kubeconfig, signal),
    gateway: { url: `https://localhost:${operator?.gatewayPort}`, ca: Buffer.from(ca, "base64").toString("utf8") },
  };
}

async function tell(story: Story, access: AgentWorldsOptions): Promise<{ version: number; digest: string }> {
  const { narrator, kubectl, signal } = story;
  await using worlds = new AgentWorlds(access);

  narrator.step("kubectl apply -f runtime-docker.yaml -f world.yaml");
  await applyExamples(story);
  await kubectl("wait", "--for=condition=Ready", "--timeout=60s", "runtime/local", "world/hello");
  narrator.say(await kubectl("get", "runtimes,worlds"));

  narrator.step("An agent opens a session through the SDK, installs a tool and writes a file");
  const first = await worlds.sandboxes.create({
    world: "hello",
    name: "first",
    ttlSeconds: 8,
    agent: { id: "demo-agent", conversation: "c-1" },
    signal,
  });
  await shell(
    first,
    "mkdir -p /usr/local/bin /srv && printf '#!/bin/sh\\necho hello from $(cat /srv/name)\\n' > /usr/local/bin/greet",
  );
  await shell(first, "chmod 755 /usr/local/bin/greet");
  await first.writeFile("/srv/name", "a World that persists");
  narrator.say(`$ greet\n${await shell(first, "greet")}`);
  narrator.say(await kubectl("get", "worlds,sandboxes"));

  narrator.step("A touch moves the deadline; then it passes");
  const before = first.expiresAt;
  const touched = await first.touch({ ttlSeconds: 10 });
  narrator.say(`expires at ${touched.expiresAt?.toISOString()}, before ${before?.toISOString()}`);
  await kubectl("wait", "--for=condition=Hibernated", "--timeout=60s", "sandbox/first");
  const { version, digest, image } = await headOf(story, 1);
  narrator.say(await kubectl("get", "worlds,sandboxes"));
  narrator.say(`World.status.head: version ${version}\n${digest}`);

  narrator.step("A new session boots from it and finds the work");
  await using second = await worlds.sandboxes.create({ world: "hello", name: "second", ttlSeconds: 60, signal });
  const greeting = await shell(second, "greet");
  narrator.say(`$ greet\n${greeting}`);
  if (!greeting.includes("hello from a World that persists")) throw new PartFailed("demo", "the work was not there");
  const closed = await second.close();
  narrator.say(`closed in version ${closed.version}`);

  narrator.step("docker run of the pinned image finds it too");
  const printed = await dockerRun(story, image, ["/usr/local/bin/greet"]);
  narrator.say(`$ docker run ${image} greet\n${printed}`);
  if (!printed.includes("hello from a World that persists"))
    throw new PartFailed("demo", "docker run did not find the work");

  return { version, digest };
}

/** Runs a command of the story and returns what it printed. */
async function shell(session: Session, command: string): Promise<string> {
  const { exitCode, stdout, stderr } = await session.exec(command);
  if (exitCode === 0) return stdout;
  throw new PartFailed("demo", `\`${command}\` ended with ${exitCode}: ${stderr.trim()}`);
}

/** The examples as they are in the repository; only the engine's address, and an image that cannot be made, are this machine's. */
async function applyExamples({ parts, image, signal }: Story): Promise<void> {
  const runtime = (await readFile(join(EXAMPLES, "runtime-docker.yaml"), "utf8")).replace(
    "unix:///var/run/docker.sock",
    parts.engine.dockerHost,
  );
  const world = (await readFile(join(EXAMPLES, "world.yaml"), "utf8")).replace(
    /[^\s/]+\/base\/workbench:/,
    `${parts.registry.host}/base/${image}:`,
  );
  await run(kubectlWords(parts.controlPlane.kubeconfig, "apply", "-f", "-"), {
    signal,
    input: `${runtime}\n---\n${world}`,
  });
}

async function headOf({ kubectl, signal }: Story, atLeast: number) {
  return eventually(
    async () => {
      const head = JSON.parse(await kubectl("get", "world", "hello", "-o", "jsonpath={.status.head}"));
      return head.version >= atLeast ? (head as { version: number; digest: string; image: string }) : undefined;
    },
    { signal, timeoutMs: 30_000, what: `version ${atLeast} of the World` },
  );
}

/** `docker run --rm IMAGE COMMAND` over the Engine API: this machine need not have the client. */
async function dockerRun({ parts, signal }: Story, image: string, command: string[]): Promise<string> {
  const { dockerHost } = parts.engine;
  const call = (method: string, path: string, body?: unknown) =>
    callEngine(dockerHost, {
      method,
      path,
      headers: { "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal,
    });
  expectSuccess("pull", await call("POST", `/images/create?fromImage=${encodeURIComponent(image)}`));
  const created = expectSuccess(
    "create",
    await call("POST", "/containers/create", { Image: image, Cmd: command, Tty: true }),
  );
  const { Id: id } = JSON.parse(created);
  try {
    expectSuccess("start", await call("POST", `/containers/${id}/start`));
    expectSuccess("wait", await call("POST", `/containers/${id}/wait`));
    return expectSuccess("logs", await call("GET", `/containers/${id}/logs?stdout=1&stderr=1`));
  } finally {
    expectSuccess("remove", await call("DELETE", `/containers/${id}?force=1`));
  }
}

/** How to reach what is kept, and how to end it. */
function sayKept({ controlPlane, engine }: PartsFile, { directory }: LocalPaths): void {
  const variables = { KUBECONFIG: controlPlane.kubeconfig, DOCKER_HOST: engine.dockerHost };
  const where = directory === defaultDirectory ? "" : ` (in ${directory})`;
  const lines = [
    "",
    `Everything still runs${where}: the World \`hello\`, the Runtime \`local\`, the operator, control plane, engine and registry.`,
    `kubeconfig  ${controlPlane.kubeconfig}`,
    "",
    ...exportLines(variables)
      .split("\n")
      .map((line) => `  ${line}`),
    "  kubectl get worlds,sandboxes,runtimes",
    "  kubectl describe world hello",
    "  kubectl apply -f examples/sandbox.yaml",
    "",
    "`make down` ends it, and everything goes: the World, its versions, and the registry they are in.",
    "",
  ];
  process.stderr.write(lines.join("\n"));
}
