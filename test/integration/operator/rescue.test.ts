/** Work that could not be published, on real parts: kept, tried again, exported, ignored, discarded; and deletions that end. */
import assert from "node:assert/strict";
import { after, afterEach, before, describe, test } from "node:test";
import {
  type Sandbox,
  type SandboxSpec,
  SKIP_FINALIZER,
  type World,
  type WorldRequestResult,
  type WorldRescue,
  type WorldVerb,
} from "@agentworlds/crds";
import { callEngine } from "../../../hack/parts/engine-api.ts";
import { isConflict, isNotFound } from "../../../operator/src/kube/errors.ts";
import { NAMESPACES } from "../../../operator/src/kube/resource-types.ts";
import { rescueTag } from "../../../operator/src/snapshot/publish.ts";
import { eventWith } from "../../kit/events.ts";
import { type ActiveRule, eventually, type FaultProxy, startFaultProxy } from "../../kit/index.ts";
import { conditionOf, type RunningControllers, startControllers, testConfig, until } from "../../kit/operator.ts";
import { Stage } from "../../kit/stage.ts";

const DEADLINE_SECONDS = 6;

describe("rescues", () => {
  const parts = new AsyncDisposableStack();
  let stage: Stage;
  let registry: FaultProxy;
  let controllers: RunningControllers;

  const start = () =>
    startControllers(stage.site, {
      config: testConfig(stage.site.ground, {
        limits: { rescueAfterSeconds: 1, deletionDeadlineSeconds: DEADLINE_SECONDS },
      }),
    });

  before(async () => {
    stage = parts.use(
      await Stage.open({
        async registryUrl(url) {
          const { hostname, port } = new URL(url);
          registry = parts.use(await startFaultProxy({ targetHost: hostname, targetPort: Number(port) }));
          return registry.url;
        },
      }),
    );
    controllers = await start();
    parts.defer(() => controllers.stop());
  });
  after(() => parts.disposeAsync());

  /**
   * Nothing of the registry can be read or written any more. 403: engine and operator give up at once, where after a 503
   * the engine alone tries each layer again.
   */
  const registryDown = (status: 403 | 503 = 403): ActiveRule => {
    const down = registry.add({ fault: { kind: "respond", status } });
    outages.push(down);
    return down;
  };
  const outages: ActiveRule[] = [];
  // A test that fails in an outage takes no other with it.
  afterEach(() => {
    for (const outage of outages.splice(0)) outage.remove();
  });

  const rescuesOf = async (world: World): Promise<WorldRescue[]> => (await stage.world(world)).status.rescues ?? [];
  const keptByRuntime = async (operation: string): Promise<boolean> => {
    const runtime = await stage.site.runtimes.get({ name: "local" }, { signal: stage.site.signal });
    return runtime.status.rescues?.some((rescue) => rescue.operation === operation) === true;
  };

  /** A session with a file, whose end could not be published. The registry stays down until the rule is removed. */
  async function rescued(
    text: string,
    status?: 503,
  ): Promise<{ world: World; sandbox: Sandbox; rescue: WorldRescue; down: ActiveRule }> {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world);
    await stage.shell(sandbox, `echo ${text} > /tmp/work`);
    const down = registryDown(status);
    await stage.patchMode(sandbox, "Hibernated");
    const [rescue] = await eventually(
      async () => {
        const found = await rescuesOf(world);
        return found.length > 0 ? found : undefined;
      },
      { what: "the rescue", timeoutMs: 60_000 },
    );
    assert.ok(rescue);
    const after = await until(
      () => stage.sandbox(sandbox),
      (object) =>
        object.status.lastEnding?.outcome === "Rescued" &&
        conditionOf(object, "SnapshotFailed")?.message?.includes(`as rescue ${rescue.operation}`) === true,
      { what: "the Sandbox saying so" },
    );
    return { world, sandbox: after, rescue, down };
  }

  async function assertNothingLeft(world: World, sandbox: Sandbox, { operation }: WorldRescue): Promise<void> {
    await eventually(
      async () => {
        assert.deepEqual(await rescuesOf(world), []);
        assert.equal(await keptByRuntime(operation), false);
        assert.equal(await stage.containers(sandbox), 0);
        const captures = await stage.driver.listCaptures(stage.installation, stage.site.signal);
        assert.deepEqual(
          captures.filter((capture) => capture.operation === operation),
          [],
        );
        assert.deepEqual(
          (await stage.tags(world)).filter((tag) => tag.startsWith("capture-")),
          [],
        );
        return true;
      },
      { what: "nothing being left of the rescue", timeoutMs: 30_000 },
    );
  }

  /** Appends a request as a gateway does, and waits for the leader's answer. */
  async function ask(world: World, verb: WorldVerb, operation: string): Promise<WorldRequestResult> {
    const { name, namespace = "" } = world.metadata;
    const id = `${verb}-${Date.now()}`;
    const { worlds, signal } = stage.site;
    await eventually(
      async () => {
        const fresh = await stage.world(world);
        const request = { id, verb, parameters: { operation }, user: "ada", at: new Date().toISOString() };
        const requests = [...(fresh.status.requests ?? []), request];
        const { resourceVersion } = fresh.metadata;
        try {
          await worlds.patchStatus(
            { namespace, name },
            { metadata: { resourceVersion }, status: { requests } },
            { signal },
          );
          return true;
        } catch (error) {
          if (isConflict(error)) return false;
          throw error;
        }
      },
      { what: "the request" },
    );
    return eventually(
      async () => (await stage.world(world)).status.requests?.find((request) => request.id === id)?.result,
      { what: `the answer to ${verb}`, timeoutMs: 60_000 },
    );
  }

  test("the registry is down over an ending: the work is kept and becomes the next version when it is back", async () => {
    const { world, sandbox, rescue, down } = await rescued("kept", 503);
    assert.match(
      conditionOf(sandbox, "SnapshotFailed")?.message ?? "",
      /kept on local\/here as .+ until .+Z as rescue/,
    );
    assert.equal(await keptByRuntime(rescue.operation), true);
    assert.equal(await stage.containers(sandbox), 1);
    assert.equal((await stage.driver.inspect(rescue.computeId, stage.site.signal)).state, "Exited");
    await until(
      () => stage.world(world),
      (object) => conditionOf(object, "SnapshotFailed")?.status === "True",
      { what: "the World saying so" },
    );
    down.remove();
    const asleep = await stage.hibernated(sandbox);
    const { status } = await stage.world(world);
    assert.equal(status.head?.version, 1);
    assert.deepEqual(status.versions?.at(-1)?.recovered, { reason: "Rescued" });
    assert.equal(status.versions?.at(-1)?.reason, "Mode");
    assert.equal(await stage.readInVersion(world, status.head?.digest, "tmp/work"), "kept\n");
    assert.equal(asleep.status.lastSnapshot?.digest, status.head?.digest);
    await assertNothingLeft(world, sandbox, rescue);
    await eventWith(stage.site, world, "RescuePublished");
  });

  test("an operator that is started anew goes on with what the one before has kept", async () => {
    const { world, sandbox, rescue, down } = await rescued("restarted");
    await controllers.stop();
    down.remove();
    controllers = await start();
    await stage.hibernated(sandbox);
    const { status } = await stage.world(world);
    assert.equal(await stage.readInVersion(world, status.head?.digest, "tmp/work"), "restarted\n");
    await assertNothingLeft(world, sandbox, rescue);
  });

  test("a retry that somebody asks for says what stands in the way, and then makes the version", async () => {
    const { world, sandbox, rescue, down } = await rescued("asked");
    const failed = await ask(world, "RetryRescue", rescue.operation);
    assert.deepEqual([failed.outcome, failed.code], ["Failed", "RetryFailed"]);
    assert.match(failed.message ?? "", /answered 403|not pushed/);
    down.remove();
    const done = await ask(world, "RetryRescue", rescue.operation);
    assert.deepEqual([done.outcome, done.version], ["Succeeded", 1]);
    await assertNothingLeft(world, sandbox, rescue);
  });

  test("discarded work is gone, with container, capture and records; an Event says who did it", async () => {
    const { world, sandbox, rescue, down } = await rescued("unwanted");
    const { outcome } = await ask(world, "DiscardRescue", rescue.operation);
    down.remove();
    assert.equal(outcome, "Succeeded");
    await assertNothingLeft(world, sandbox, rescue);
    const { status } = await stage.world(world);
    assert.equal(status.head?.version, 0);
    assert.deepEqual(
      status.lostWork?.map(({ operation, cause, discardedBy }) => [operation, cause, discardedBy]),
      [[rescue.operation, "Discarded", "ada"]],
    );
    assert.match((await eventWith(stage.site, world, "RescueDiscarded")).note, /discarded by ada/);
  });

  test("a session that ignores the rescue boots from head and says so in its version; the work is exported and runs", async () => {
    const { world, rescue, down } = await rescued("beside");
    down.remove();
    const ignoring: Partial<SandboxSpec> = { rescuePolicy: "Ignore" };
    const second = await takenBeforeRetry(world, ignoring);
    assert.deepEqual(second.status.ignoredRescues, [rescue.operation]);
    assert.equal(await stage.shell(second, "cat /tmp/work || echo none"), "none\n");
    const { outcome, image = "", digest } = await ask(world, "ExportRescue", rescue.operation);
    assert.equal(outcome, "Succeeded");
    assert.ok((await stage.tags(world)).includes(rescueTag(rescue.operation)));
    assert.equal(await outputOf(image, ["cat", "/tmp/work"]), "beside\n");
    await stage.shell(second, "echo after > /tmp/after");
    await stage.setMode(second, "Hibernated");
    const { status } = await stage.world(world);
    assert.deepEqual(status.versions?.at(-1)?.ignoredRescues, [rescue.operation]);
    assert.notEqual(status.head?.digest, digest);
    const refused = await ask(world, "RetryRescue", rescue.operation);
    assert.deepEqual([refused.outcome, refused.code], ["Refused", "NotPublishable"]);
    assert.match(refused.message ?? "", /BaseBehindHead/);
    assert.equal((await rescuesOf(world)).length, 1, "it is kept until its time is over");
    await ask(world, "DiscardRescue", rescue.operation);
  });

  /** The World's next own attempt may come first: then there is no rescue to ignore, and the test begins anew. */
  async function takenBeforeRetry(world: World, spec: Partial<SandboxSpec>): Promise<Sandbox> {
    const sandbox = await stage.sandboxOf({ world: { name: world.metadata.name }, ...spec });
    return stage.ready(sandbox, 1);
  }

  /** What a command prints in a container of the image, by the engine alone. */
  async function outputOf(image: string, command: readonly string[]): Promise<string> {
    const { dockerHost } = stage.site.ground;
    const { signal } = stage.site;
    await stage.driver.pull(image, undefined, signal);
    const call = async (method: "GET" | "POST" | "DELETE", path: string, json?: unknown) => {
      const answer = await callEngine(dockerHost, {
        method,
        path,
        signal,
        ...(json === undefined ? {} : { headers: { "content-type": "application/json" }, body: JSON.stringify(json) }),
      });
      assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${answer.text}`);
      return answer.text;
    };
    const { Id } = JSON.parse(
      String(
        await call("POST", "/containers/create", { Image: image, Cmd: command, Tty: true, NetworkDisabled: true }),
      ),
    );
    try {
      await call("POST", `/containers/${Id}/start`);
      await call("POST", `/containers/${Id}/wait`);
      return String(await call("GET", `/containers/${Id}/logs?stdout=1`)).replaceAll("\r\n", "\n");
    } finally {
      await call("DELETE", `/containers/${Id}?force=1&v=1`);
    }
  }

  async function gone(read: () => Promise<unknown>, what: string, timeoutMs: number): Promise<void> {
    await eventually(
      async () => {
        try {
          await read();
          return false;
        } catch (error) {
          if (isNotFound(error)) return true;
          throw error;
        }
      },
      { what, timeoutMs },
    );
  }

  test("a namespace that is deleted while the registry is down is gone within the bound; the Runtime keeps the work", async () => {
    const namespace = await stage.site.namespace();
    const world = await stage.readyWorld(undefined, {}, namespace);
    const sandbox = await stage.sandboxOf({ world: { name: world.metadata.name } }, namespace);
    await stage.shell(await stage.ready(sandbox, 1), "echo last > /tmp/work");
    const down = registryDown();
    const begun = Date.now();
    await stage.site.kubectl("delete", "namespace", namespace, "--wait=false");
    const namespaces = stage.site.kube.resource(NAMESPACES);
    await gone(
      () => namespaces.get({ name: namespace }, { signal: stage.site.signal }),
      "the namespace being gone",
      2 * DEADLINE_SECONDS * 1_000 + 60_000,
    );
    down.remove();
    const seconds = (Date.now() - begun) / 1_000;
    const runtime = await stage.site.runtimes.get({ name: "local" }, { signal: stage.site.signal });
    const kept = runtime.status.rescues?.find((rescue) => rescue.sandbox.uid === sandbox.metadata.uid);
    assert.ok(kept, `written down after ${seconds} s`);
    assert.equal((await stage.driver.inspect(kept.computeId, stage.site.signal)).state, "Exited");
  });

  test("the annotation that names its own UID lets a Sandbox go at once, and its work is kept", async () => {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world);
    await stage.shell(sandbox, "echo skipped > /tmp/work");
    const down = registryDown();
    const { name, namespace = "", uid } = sandbox.metadata;
    const { sandboxes, signal } = stage.site;
    await sandboxes.patch({ namespace, name }, { metadata: { annotations: { [SKIP_FINALIZER]: uid } } }, { signal });
    await sandboxes.delete({ namespace, name }, { signal, uid });
    await gone(() => sandboxes.get({ namespace, name }, { signal }), "the Sandbox being gone", 15_000);
    const [rescue] = await rescuesOf(world);
    assert.ok(rescue);
    down.remove();
    await eventually(async () => (await stage.world(world)).status.head?.version === 1, {
      what: "its version",
      timeoutMs: 60_000,
    });
    await assertNothingLeft(world, sandbox, rescue);
  });
});
