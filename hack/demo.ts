/**
 * The whole product in one story, on real parts: `make demo`. Ends with one line of JSON on stdout; the narration goes to
 * stderr. `KEEP=1` leaves everything running until Ctrl-C and prints how to reach it. A cluster that env KUBECONFIG names is
 * used instead of a control plane of our own; sessions then go to the gateway's own endpoint, since that cluster's API server
 * may not reach this machine.
 */
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { AgentWorlds, type AgentWorldsOptions, type Session } from "../sdk/src/index.ts";
import { Narrator } from "./narrator.ts";
import type { BaseImageName } from "./parts/base-images.ts";
import { runCommandLine } from "./parts/command-line.ts";
import { partDirectory } from "./parts/directory.ts";
import { callEngine, expectSuccess } from "./parts/engine-api.ts";
import { PartFailed } from "./parts/errors.ts";
import { type GivenCluster, givenKubeconfig, useGivenCluster } from "./parts/given-cluster.ts";
import { kubectlWords } from "./parts/kubectl.ts";
import { installOperator, OPERATOR_NAMESPACE, startOperator } from "./parts/operator.ts";
import { startParts } from "./parts/parts.ts";
import type { PartsFile } from "./parts/parts-file.ts";
import { run } from "./parts/process.ts";
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

await runCommandLine(async (_words, interrupted) => {
  const narrator = new Narrator(process.stderr, process.env);
  const signal = AbortSignal.any([interrupted, AbortSignal.timeout(WITHIN_MS)]);
  const ended = await withEverything(narrator, { signal, interrupted });
  process.stdout.write(`${JSON.stringify({ ok: true, seconds: Number(narrator.elapsed().toFixed(1)), ...ended })}\n`);
  return 0;
});

/** Parts and operator up, the story told, everything down again. */
async function withEverything(narrator: Narrator, signals: { signal: AbortSignal; interrupted: AbortSignal }) {
  const { signal } = signals;
  const kubeconfigGiven = givenKubeconfig();
  // Only root can make the workbench; what the story needs of it busybox has too.
  const isOrdinaryUser = process.getuid?.() !== 0;
  const image: BaseImageName = isOrdinaryUser && !(await workbenchIsMade()) ? "busybox" : "workbench";
  await expectPrepared(demo(kubeconfigGiven === undefined ? "Own" : "Given", image), signal);
  await using undo = new AsyncDisposableStack();
  const toEnd = "wait until it has ended, or end it with Ctrl-C";
  undo.use(await reservePort({ port: REGISTRY_PORT, by: "make demo", toEnd, signal }));
  narrator.step("Local parts: a Kubernetes control plane, a container engine, a registry, a base image");
  if (image === "busybox") narrator.say("the World is made from busybox: only root can make the image workbench");
  const directory = undo.use(await partDirectory({ kind: "demo" }));
  const cluster = kubeconfigGiven === undefined ? undefined : undo.use(await useGivenCluster(kubeconfigGiven, signal));
  const parts = undo.use(
    await startParts({
      baseImages: [image],
      registryPort: REGISTRY_PORT,
      ...(kubeconfigGiven === undefined ? {} : { kubeconfig: kubeconfigGiven }),
      signal,
    }),
  );
  const { kubeconfig } = parts.file.controlPlane;
  const kubectl = (...words: string[]) => run(kubectlWords(kubeconfig, ...words), { signal });
  narrator.say(`kube-apiserver ${parts.file.controlPlane.url}\nengine         ${parts.file.engine.dockerHost}`);
  narrator.say(`registry       ${parts.file.registry.url}`);

  narrator.step("CRDs, admission policies and the operator");
  const stampedBy = await installOperator(kubeconfig, signal);
  if (cluster !== undefined && stampedBy === "Gateway") {
    // Its API server is older than 1.36 and may not reach this machine: nobody can stamp.
    await kubectl("delete", "validatingadmissionpolicybinding", "created-by-is-there.agentworlds.dev");
    narrator.say("this cluster does not stamp creators and may not reach this machine: they stay unnamed in this demo");
  }
  const operator = undo.use(
    await startOperator({
      kubeconfigPath: kubeconfig,
      registryUrl: parts.file.registry.url,
      directory: join(directory.path, "operator"),
      ...(cluster === undefined ? {} : { aggregation: "Disabled" }),
      signal,
    }),
  );
  // Before the operator ends: also after Ctrl-C and failures nothing may stay in somebody's cluster.
  if (cluster !== undefined) undo.use(cluster.objects());
  const direct = cluster && (await directAccess(cluster, { port: operator.gatewayPort, kubectl, signal }));
  narrator.say(await kubectl("api-resources", "--categories=agentworlds"));
  try {
    const story = { parts: parts.file, image, narrator, signal, kubectl };
    const ended = await tell(story, { kubeconfig, namespace: NAMESPACE, ...direct });
    if (process.env["KEEP"] === "1") {
      await keep(parts.file, signals.interrupted);
      narrator.step("No longer kept: everything that was started ends");
      // The wish to stop is how keeping ends: what follows must still be carried out.
      return ended;
    }
    narrator.step("kubectl delete");
    await kubectl("delete", "sandbox,world,runtime", "--all", "--timeout=60s");
    narrator.step("Everything that was started ends");
    return ended;
  } catch (error) {
    narrator.say(
      `the operator's last lines:\n${(await readFile(operator.logPath, "utf8")).split("\n").slice(-15).join("\n")}`,
    );
    throw error;
  } finally {
    await undo.disposeAsync();
    narrator.end();
  }
}

/** How the SDK reaches sessions where kube-apiserver cannot reach the gateway. */
async function directAccess(
  cluster: GivenCluster,
  { port, kubectl, signal }: Pick<Story, "kubectl" | "signal"> & { port: number },
): Promise<Pick<AgentWorldsOptions, "token" | "gateway">> {
  const path = "jsonpath={.data.ca\\.crt}";
  const ca = await kubectl("-n", OPERATOR_NAMESPACE, "get", "secret", "agent-worlds-gateway-tls", "-o", path);
  return {
    token: await cluster.token(signal),
    gateway: { url: `https://localhost:${port}`, ca: Buffer.from(ca, "base64").toString("utf8") },
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
  const world = (await readFile(join(EXAMPLES, "world.yaml"), "utf8")).replace("base/workbench:", `base/${image}:`);
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

/** Leaves everything running until Ctrl-C. */
async function keep(parts: PartsFile, interrupted: AbortSignal): Promise<void> {
  const lines = [
    "",
    "Kept, with the World `hello` and the Runtime `local`. In another terminal:",
    ...exportLines({ KUBECONFIG: parts.controlPlane.kubeconfig, DOCKER_HOST: parts.engine.dockerHost })
      .split("\n")
      .map((line) => `  ${line}`),
    "  kubectl get worlds,sandboxes,runtimes",
    "Ctrl-C ends it, and everything goes: the World, its versions, and the registry they are in.",
    "",
  ];
  process.stderr.write(lines.join("\n"));
  if (!interrupted.aborted) await once(interrupted, "abort");
}
