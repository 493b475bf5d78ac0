/**
 * Below Kubernetes 1.36 nobody but a webhook stamps creators. The API server here says of itself that it is 1.34: it serves
 * no MutatingAdmissionPolicy, and the gateways find that out by themselves.
 */
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { CREATED_BY, sandboxSchema } from "@agentworlds/crds";
import { z } from "zod";
import { createAuthority, issue } from "../../../hack/parts/certificates.ts";
import { WEBHOOK_PATH } from "../../../operator/src/gateway/admission-webhook.ts";
import { GatewayLeases } from "../../../operator/src/gateway/gateway-lease.ts";
import { GatewayWatch } from "../../../operator/src/gateway/gateway-watch.ts";
import { withdrawIfNoGateway } from "../../../operator/src/gateway/registration.ts";
import type { Gateway } from "../../../operator/src/gateway/server.ts";
import { SERVING_SECRET } from "../../../operator/src/gateway/serving-certificate.ts";
import { MUTATING_WEBHOOKS, SECRETS } from "../../../operator/src/kube/resource-types.ts";
import { systemClock } from "../../../operator/src/reconciler/clock.ts";
import type { KubeObject } from "../../../operator/src/reconciler/list-watch.ts";
import { eventually } from "../../kit/index.ts";
import { Api, kubectl, kubectlOk, pathOf } from "../crds/api.ts";
import { CREATORS, type Creator, sandboxOf, stampOf } from "./creators.ts";
import { LAB, type Lab, SYSTEM, startLab } from "./fixture.ts";
import { type KnownPort, knownPort } from "./webhook-clients.ts";

const GENERATED = join(import.meta.dirname, "../../../crds/generated");
const WEBHOOK = "created-by.agentworlds.dev";
const FORGED = { [CREATED_BY]: '{"user":"somebody-else"}' };

/** An object as far as its stamp is looked at: a dry run has no resourceVersion. */
const STAMPED = z.object({ metadata: z.object({ annotations: z.record(z.string(), z.string()).optional() }) });

interface Configuration extends KubeObject {
  readonly webhooks: readonly {
    readonly clientConfig: { readonly caBundle: string; readonly service: { readonly port: number } };
    readonly failurePolicy: string;
    readonly matchPolicy: string;
    readonly sideEffects: string;
    readonly rules: readonly { readonly operations: readonly string[]; readonly resources: readonly string[] }[];
  }[];
}

describe("on an API server that does not stamp creators by itself", () => {
  let lab: Lab;
  let admin: Api;
  let known: KnownPort;
  let directory: string;
  let names = 0;

  before(async () => {
    directory = await mkdtemp(join(tmpdir(), "agent-worlds-webhook-"));
    known = await knownPort(directory);
    lab = await startLab(["--emulated-version=1.34", ...known.flags]);
    admin = await Api.open(lab.cluster.kubeconfigPath);
    await lab.kubectl("apply", "--server-side", "-f", join(GENERATED, "admission.yaml"));
    for (const user of new Set(CREATORS.map(({ user }) => user))) await allow(user);
    await eventually(async () => (await create({ what: "", user: "alice" })).status === 403, {
      what: "the policies being in force",
    });
  });
  after(async () => {
    await admin?.[Symbol.asyncDispose]();
    await lab?.[Symbol.asyncDispose]();
    await rm(directory, { recursive: true, force: true });
  });

  let grants = 0;
  /** Everything of ours in the lab, and to be somebody else. */
  async function allow(user: string): Promise<void> {
    const rbac = "/apis/rbac.authorization.k8s.io/v1";
    const name = `creator-${grants++}`;
    const rules = [
      { apiGroups: ["agentworlds.dev"], resources: ["*"], verbs: ["*"] },
      { apiGroups: [""], resources: ["users", "serviceaccounts"], verbs: ["impersonate"] },
    ];
    await admin.send("POST", `${rbac}/clusterroles`, { metadata: { name }, rules });
    const answer = await admin.send("POST", `${rbac}/clusterrolebindings`, {
      metadata: { name },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name },
      subjects: [user, "carol", "system:serviceaccount:ci:other"].map((subject) => ({
        kind: "User",
        apiGroup: "rbac.authorization.k8s.io",
        name: subject,
      })),
    });
    assert.equal(answer.status, 201, answer.message);
  }

  const identities = new Map<string, Promise<string>>();
  const kubeconfigOf = ({ user, groups = [] }: Creator): Promise<string> => {
    const key = JSON.stringify([user, groups]);
    const known = identities.get(key) ?? lab.cluster.kubeconfigFor({ user, groups });
    identities.set(key, known);
    return known;
  };

  /** Creates a Sandbox through kubectl; the stamp that it has then, or the refusal. */
  async function create(
    creator: Creator,
    flags: readonly string[] = [],
  ): Promise<{ status: 201; name: string; stamp: string | undefined } | { status: 403 | 500; message: string }> {
    const name = `box-${names++}`;
    const as = creator.as === undefined ? [] : ["--as", creator.as];
    const words = ["create", "-f", "-", "-o", "json", ...as, ...flags];
    const result = await kubectl(await kubeconfigOf(creator), words, sandboxOf(creator, { name, namespace: LAB }));
    if (result.code !== 0) {
      return {
        status: result.stderr.includes("(Forbidden)") || result.stderr.includes("forbidden") ? 403 : 500,
        message: result.stderr,
      };
    }
    const { metadata } = STAMPED.parse(JSON.parse(result.stdout));
    return { status: 201, name, stamp: metadata.annotations?.[CREATED_BY] };
  }

  const ALICE: Creator = { what: "a person", user: "alice" };
  const webhook = async (): Promise<Configuration | undefined> =>
    (
      await lab.kube
        .resource<Configuration>(MUTATING_WEBHOOKS)
        .list({ fieldSelector: `metadata.name=${WEBHOOK}`, signal: lab.signal })
    ).items[0];
  const port = async (): Promise<number | undefined> => (await webhook())?.webhooks[0]?.clientConfig.service.port;
  const stampGateway = (name: string, config = {}): Promise<Gateway> =>
    lab.gateway(name, { creatorStamp: "Enabled", ...config });
  /** kube-apiserver learns of the webhook by a watch. */
  const stamping = (): Promise<unknown> =>
    eventually(async () => (await create(ALICE, ["--dry-run=server"])).status === 201, {
      what: "creations being stamped",
      intervalMs: 200,
    });
  /** The calls of the audit log that wrote webhook configurations. */
  async function webhookWrites(): Promise<number> {
    const entry = z.looseObject({ verb: z.string(), objectRef: z.looseObject({ resource: z.string() }).optional() });
    return (await readFile(lab.cluster.auditLogPath, "utf8"))
      .split("\n")
      .filter((line) => line.includes("mutatingwebhookconfigurations"))
      .map((line) => entry.parse(JSON.parse(line)))
      .filter(({ verb, objectRef }) => objectRef?.resource === MUTATING_WEBHOOKS.plural && verb !== "get")
      .filter(({ verb }) => !["list", "watch"].includes(verb)).length;
  }

  test("it serves no MutatingAdmissionPolicy", async () => {
    const { body } = await admin.send("GET", "/apis/admissionregistration.k8s.io/v1");
    const served = z.object({ resources: z.array(z.object({ name: z.string() })) }).parse(body);
    const resources = served.resources.map(({ name }) => name);
    assert.ok(resources.includes("validatingadmissionpolicies"));
    assert.ok(!resources.includes("mutatingadmissionpolicies"));
  });

  test("while no gateway serves, a creation is refused and told why; whoever states truly who they are creates", async () => {
    const refused = await create(ALICE);
    assert.ok(refused.status === 403);
    assert.match(refused.message, /nothing stamped who creates this: below Kubernetes 1\.36 a gateway/);
    assert.match(refused.message, /set the annotation agentworlds\.dev\/created-by to \{"user":"alice"\}/);
    const stated = await create({ ...ALICE, annotations: { [CREATED_BY]: '{"user":"alice"}' } });
    assert.ok(stated.status === 201);
    const forged = await create({ ...ALICE, annotations: FORGED });
    assert.ok(forged.status === 403);
    assert.match(forged.message, /names the creator, and that is whoever sends the request: leave it out/);
  });

  describe("a gateway", () => {
    let gateway: Gateway;
    before(async () => {
      gateway = await stampGateway("stamps");
      await stamping();
    });
    after(() => gateway?.stop());

    test("registers a webhook for creations of Worlds and Sandboxes and nothing else", async () => {
      const [registered, ...others] = (await webhook())?.webhooks ?? [];
      assert.deepEqual(others, []);
      assert.equal(registered?.clientConfig.service.port, gateway.port);
      assert.equal(Buffer.from(registered?.clientConfig.caBundle ?? "", "base64").toString(), gateway.caBundle);
      const [rule, ...moreRules] = registered?.rules ?? [];
      assert.deepEqual(moreRules, []);
      assert.deepEqual(rule?.operations, ["CREATE"]);
      assert.deepEqual(rule?.resources, ["worlds", "sandboxes"]);
      assert.equal(registered?.failurePolicy, "Fail");
      assert.equal(registered?.sideEffects, "None");
      assert.equal(registered?.matchPolicy, "Equivalent");
    });

    for (const creator of CREATORS) {
      // That it is created at all says that the policies, which know the stamp in CEL, found the same bytes.
      test(`${creator.what} is named as the policies would name them`, async () => {
        const created = await create(creator);
        assert.ok(created.status === 201, JSON.stringify(created));
        assert.equal(created.stamp, stampOf(creator));
      });
    }

    test("a World is stamped too", async () => {
      const manifest = { apiVersion: "agentworlds.dev/v1alpha1", kind: "World", spec: { from: { image: "busybox" } } };
      const text = JSON.stringify({ ...manifest, metadata: { name: "stamped", namespace: LAB, annotations: FORGED } });
      const words = ["create", "-f", "-", "-o", `jsonpath={.metadata.annotations.agentworlds\\.dev/created-by}`];
      assert.equal(await kubectlOk(await kubeconfigOf(ALICE), words, text), '{"user":"alice"}');
    });

    test("an apply creates with a stamp, and applied again changes nothing", async () => {
      for (const flags of [[], ["--server-side"]]) {
        const text = sandboxOf(ALICE, { name: `applied-${flags.length}`, namespace: LAB });
        const apply = async () =>
          sandboxSchema.parse(
            JSON.parse(await kubectlOk(await kubeconfigOf(ALICE), ["apply", ...flags, "-f", "-", "-o", "json"], text)),
          ).metadata;
        await apply();
        const settled = await apply();
        const again = await apply();
        assert.equal(again.annotations?.[CREATED_BY], '{"user":"alice"}');
        assert.equal(again.resourceVersion, settled.resourceVersion);
      }
    });

    test("a dry run is stamped like a creation and leaves nothing", async () => {
      const dry = await create({ ...ALICE, annotations: FORGED }, ["--dry-run=server"]);
      assert.ok(dry.status === 201);
      assert.equal(dry.stamp, '{"user":"alice"}');
      assert.equal((await admin.send("GET", pathOf("Sandbox", { namespace: LAB, name: dry.name }))).status, 404);
    });

    test("nobody changes or removes the stamp afterwards", async () => {
      const created = await create(ALICE);
      assert.ok(created.status === 201);
      const bob = await Api.open(await kubeconfigOf({ what: "", user: "bob" }));
      await using _ = bob;
      const path = pathOf("Sandbox", { namespace: LAB, name: created.name });
      for (const api of [bob, admin]) {
        for (const annotations of [FORGED, { [CREATED_BY]: "" }, { [CREATED_BY]: null }, null]) {
          const answer = await api.patch(path, { metadata: { annotations } });
          assert.equal(answer.status, 403, answer.message);
          assert.match(answer.message, /names the creator and cannot be set, changed or removed/);
        }
        assert.equal((await api.patch(path, { metadata: { labels: { touched: "yes" } } })).status, 200);
      }
      const { metadata } = sandboxSchema.parse((await admin.send("GET", path)).body);
      assert.equal(metadata.annotations?.[CREATED_BY], '{"user":"alice"}');
    });

    test("at rest it writes nothing to the webhook", async () => {
      const before = await webhookWrites();
      const lease = async () => lab.kubectl("get", "lease", "-n", SYSTEM, "stamps", "-o", "jsonpath={.spec.renewTime}");
      for (let passes = 0; passes < 2; passes++) {
        const seen = await lease();
        await eventually(async () => (await lease()) !== seen, { what: "one more pass", intervalMs: 250 });
      }
      assert.equal(await webhookWrites(), before);
    });

    test("what is no review is refused before it is read to its end", async () => {
      const anybody = lab.direct(gateway);
      const review = (change: object) => ({ apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", ...change });
      for (const [what, wish, status, code] of [
        ["another method", { method: "GET" }, 405, "MethodNotAllowed"],
        ["no JSON", { method: "POST", body: Buffer.from("{") }, 400, "BadJson"],
        ["no request", { method: "POST", body: review({}) }, 400, "BadBody"],
        [
          "an older version",
          { method: "POST", body: review({ apiVersion: "admission.k8s.io/v1beta1" }) },
          400,
          "BadBody",
        ],
        ["5 MiB", { method: "POST", body: Buffer.alloc(5 * 1024 * 1024, " ") }, 413, "BodyTooLarge"],
      ] as const) {
        const answer = await anybody.send({ target: WEBHOOK_PATH, ...wish });
        assert.equal(answer.status, status, what);
        const details = z.object({ code: z.string() }).parse(answer.json["details"]);
        assert.equal(details.code, code, what);
      }
    });

    test("a review that never ends does not hold its place", async () => {
      const half = lab.direct(gateway).sendHalf({ method: "POST", target: WEBHOOK_PATH, body: Buffer.from("{") });
      await half.closed;
    });
  });

  test("a new authority: no creation fails while certificates change hands", async () => {
    const gateway = await stampGateway("rotating");
    await stamping();
    const old = gateway.caBundle;
    const ended = new AbortController();
    const creations = creationsUntil(ended.signal);
    await lab.kube.resource(SECRETS).delete({ namespace: SYSTEM, name: SERVING_SECRET }, { signal: lab.signal });
    await eventually(() => gateway.caBundle !== old, { what: "a new serving certificate" });
    await eventually(
      async () =>
        Buffer.from((await webhook())?.webhooks[0]?.clientConfig.caBundle ?? "", "base64").toString() ===
        gateway.caBundle,
      { what: "the webhook trusting the new authority alone" },
    );
    ended.abort();
    const { done, failed } = await creations;
    assert.deepEqual(failed, []);
    assert.ok(done > 3, `${done} creations`);
    await stamping();
    await gateway.stop();
  });

  /** Dry-run creations, eight at a time. */
  async function creationsUntil(signal: AbortSignal): Promise<{ done: number; failed: string[] }> {
    const alice = await Api.open(await kubeconfigOf(ALICE));
    await using _ = alice;
    const failed: string[] = [];
    let done = 0;
    const row = async (): Promise<void> => {
      while (!signal.aborted) {
        const body = JSON.parse(sandboxOf(ALICE, { name: `row-${done++}`, namespace: LAB }));
        const answer = await alice.send("POST", `${pathOf("Sandbox", { namespace: LAB })}?dryRun=All`, body);
        if (answer.status !== 201) failed.push(answer.message);
      }
    };
    await Promise.all(Array.from({ length: 8 }, row));
    return { done, failed };
  }

  test("two gateways: the webhook goes over to the other, no creation fails, the last one withdraws it", async () => {
    const first = await stampGateway("first");
    await stamping();
    const second = await stampGateway("second");
    assert.equal(await port(), first.port);
    const ended = new AbortController();
    const creations = creationsUntil(ended.signal);
    await first.stop();
    assert.equal(await port(), second.port);
    ended.abort();
    const { done, failed } = await creations;
    assert.deepEqual(failed, []);
    assert.ok(done > 3, `${done} creations`);
    await second.stop();
    assert.equal(await webhook(), undefined);
    assert.equal((await create(ALICE)).status, 403);
  });

  test("a killed gateway: creations fail and say why until the controller, which saw no renewal for thirty seconds, withdraws", async () => {
    const gateway = await stampGateway("killed");
    await stamping();
    await gateway.abandon();
    const failed = await eventually(
      async () => {
        const tried = await create(ALICE);
        return tried.status === 500 && tried;
      },
      { what: "the API server missing the gateway" },
    );
    assert.match(failed.message, /failed calling webhook "created-by\.agentworlds\.dev"/);
    let moved = 0;
    const clock = { ...systemClock, monotonic: () => performance.now() + moved };
    const gateways = new GatewayWatch({ leases: new GatewayLeases(lab.kube, SYSTEM), clock });
    const answers: string[] = [];
    for (let looks = 0; looks < 5; looks++) {
      answers.push(await withdrawIfNoGateway(lab.kube, { gateways, namespace: SYSTEM, signal: lab.signal }));
      moved += 10_000;
    }
    assert.deepEqual(answers.slice(0, 3), ["Kept", "Kept", "Kept"], "it may be restarting");
    assert.ok(answers.includes("Withdrawn"));
    assert.equal(await webhook(), undefined);
    const refused = await eventually(
      async () => {
        const tried = await create(ALICE);
        return tried.status === 403 && tried;
      },
      { what: "a refusal that says what to do" },
    );
    assert.match(refused.message, /set the annotation agentworlds\.dev\/created-by to \{"user":"alice"\}/);
  });

  test("a webhook of that name that somebody else made is not withdrawn", async () => {
    const service = { namespace: SYSTEM, name: "other", path: "/" };
    const rule = { apiGroups: ["other"], apiVersions: ["v1"], operations: ["CREATE"], resources: ["others"] };
    const made = await admin.send("POST", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", {
      metadata: { name: WEBHOOK },
      webhooks: [
        {
          name: WEBHOOK,
          admissionReviewVersions: ["v1"],
          sideEffects: "None",
          clientConfig: { service },
          rules: [rule],
        },
      ],
    });
    assert.equal(made.status, 201, made.message);
    const gateways = new GatewayWatch({
      leases: { list: async () => [], release: () => Promise.resolve() },
      clock: systemClock,
    });
    await withdrawIfNoGateway(lab.kube, { gateways, namespace: SYSTEM, signal: lab.signal });
    assert.notEqual(await webhook(), undefined);
    await lab.kube.resource(MUTATING_WEBHOOKS).delete({ name: WEBHOOK }, { signal: lab.signal });
  });

  test("a gateway that was told who calls answers kube-apiserver's certificate and nobody else", async () => {
    const { authority } = known;
    const gateway = await stampGateway("choosy", { port: known.port, admissionClientCa: authority.certPem });
    await stamping();
    const wish = { method: "POST", target: WEBHOOK_PATH, body: {} };
    const proxy = lab.cluster.requestHeader;
    const stranger = issue(createAuthority("webhook-clients"), { commonName: "kube-apiserver", usage: "client" });
    const friend = issue(authority, { commonName: "kube-apiserver", usage: "client" });
    for (const [what, identity, status] of [
      ["nobody", {}, 401],
      ["the aggregation layer", { cert: proxy.proxyCertPem, key: proxy.proxyKeyPem }, 401],
      ["an authority of the same name", { cert: stranger.certPem, key: stranger.keyPem }, 401],
      ["kube-apiserver, who sent no review", { cert: friend.certPem, key: friend.keyPem }, 400],
    ] as const) {
      assert.equal((await lab.direct(gateway, identity).send(wish)).status, status, what);
    }
    const speaksForAlice = { "x-remote-user": "alice" };
    const target = "/apis/sessions.agentworlds.dev/v1alpha1";
    const spoke = lab.direct(gateway, { cert: friend.certPem, key: friend.keyPem });
    assert.equal((await spoke.send({ target, headers: speaksForAlice })).status, 401, "it speaks for nobody else");
    await gateway.stop();
  });

  test("where callers must be known and kube-apiserver is not, nobody creates", async () => {
    const gateway = await stampGateway("too-choosy", { admissionClientCa: known.authority.certPem });
    const failed = await eventually(
      async () => {
        const tried = await create(ALICE);
        return tried.status === 500 && tried;
      },
      { what: "the gateway refusing kube-apiserver" },
    );
    assert.match(failed.message, /answered to the API server's client certificate only/);
    await gateway.stop();
  });

  test("with the stamp switched off nothing is registered, and what was is taken back", async () => {
    const killed = await stampGateway("before", { aggregation: "Disabled" });
    await stamping();
    await killed.abandon();
    const gateway = await stampGateway("switched-off", { creatorStamp: "Disabled" });
    await eventually(async () => (await webhook()) === undefined, { what: "the webhook being taken back" });
    await gateway.stop();
  });

  test("whoever deletes the installation's namespace is rid of the webhook, though the gateway was killed", async () => {
    const gateway = await stampGateway("uninstalled", { aggregation: "Disabled" });
    await stamping();
    await gateway.abandon();
    await lab.kubectl("delete", "namespace", SYSTEM, "--timeout=60s");
    await eventually(async () => (await webhook()) === undefined, {
      timeoutMs: 60_000,
      what: "the garbage collector removing the webhook",
    });
  });
});
