import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import pino from "pino";
import { API_SERVICE, GATEWAY_SERVICE } from "../../../operator/src/gateway/apiservice.ts";
import { makeAuthority } from "../../../operator/src/gateway/certificate.ts";
import { GROUP, GROUP_VERSION } from "../../../operator/src/gateway/discovery.ts";
import { GatewayLeases } from "../../../operator/src/gateway/gateway-lease.ts";
import { GatewayWatch } from "../../../operator/src/gateway/gateway-watch.ts";
import { Registration, withdrawIfNoGateway } from "../../../operator/src/gateway/registration.ts";
import { SERVING_SECRET } from "../../../operator/src/gateway/serving-certificate.ts";
import type { Withdrawal } from "../../../operator/src/gateway/signpost.ts";
import { isNotFound } from "../../../operator/src/kube/errors.ts";
import { API_SERVICES, LEASES, NAMESPACES, SECRETS, SERVICES } from "../../../operator/src/kube/resource-types.ts";
import { type Clock, systemClock } from "../../../operator/src/reconciler/clock.ts";
import { eventually } from "../../kit/index.ts";
import { type Lab, SYSTEM, sessionPath, startLab } from "./fixture.ts";
import type { Caller } from "./raw-request.ts";

const MINUTE = 60_000;

/** The machine's clocks, moved on by hand; the clock on the wall may be wrong besides. */
function movedClock(wallIsOffMs = 0): Clock & { move(milliseconds: number): void } {
  let moved = 0;
  return {
    ...systemClock,
    now: () => Date.now() + moved + wallIsOffMs,
    monotonic: () => performance.now() + moved,
    move(milliseconds) {
      moved += milliseconds;
    },
  };
}

describe("the registration of the aggregated API", () => {
  let lab: Lab;
  let admin: Caller;

  before(async () => {
    lab = await startLab();
    admin = await lab.through({ user: "root", groups: ["system:masters"] });
    await lab.sandbox("box");
  });
  after(() => lab[Symbol.asyncDispose]());

  const served = async (): Promise<boolean> => (await admin.send({ target: sessionPath("box") })).status === 200;
  /** A controller that looks after the registration every ten seconds of its own time; its answers in order. */
  const controllerLooks = async (milliseconds: number): Promise<Withdrawal[]> => {
    const clock = movedClock();
    const gateways = new GatewayWatch({ leases: new GatewayLeases(lab.kube, SYSTEM), clock });
    const answers: Withdrawal[] = [];
    for (let passed = 0; passed <= milliseconds; passed += 10_000) {
      answers.push(await withdrawIfNoGateway(lab.kube, { gateways, namespace: SYSTEM, signal: lab.signal }));
      clock.move(10_000);
    }
    return answers;
  };
  const deleteNamespace = async (name: string): Promise<void> => {
    await lab.namespace(name);
    await lab.kube.resource(NAMESPACES).delete({ name }, { signal: lab.signal });
  };
  const namespaceGone = (name: string): Promise<true> =>
    eventually(
      async () => {
        try {
          await lab.kube.resource(NAMESPACES).get({ name }, { signal: lab.signal });
          return false;
        } catch (error) {
          return isNotFound(error);
        }
      },
      { timeoutMs: 60_000, what: `namespace ${name} being gone` },
    );

  test("a gateway registers when it serves, and the last one to stop in order withdraws", async () => {
    const gateway = await lab.gateway("only");
    await lab.aggregated();
    assert.ok(await served());
    await gateway.stop();
    assert.equal(await lab.registered(), false);
    await assert.rejects(
      lab.kube.resource(SERVICES).get({ namespace: SYSTEM, name: GATEWAY_SERVICE }, { signal: lab.signal }),
    );
    const leases = await lab.kube.resource(LEASES).list({ namespace: SYSTEM, signal: lab.signal });
    assert.deepEqual(leases.items, []);
    await deleteNamespace("after-stop");
    await namespaceGone("after-stop");
  });

  test("when the registered one of two gateways stops, the other takes its place", async () => {
    const first = await lab.gateway("first");
    await lab.aggregated();
    const second = await lab.gateway("second");
    await eventually(
      async () => (await lab.kube.resource(LEASES).list({ namespace: SYSTEM, signal: lab.signal })).items.length === 2,
    );
    await first.stop();
    assert.equal(await lab.registered(), true);
    await eventually(served, { what: "the second gateway serving through kube-apiserver" });
    await second.stop();
    assert.equal(await lab.registered(), false);
  });

  /** Groups of which the aggregated discovery document says that it is not up to date. */
  async function staleGroups(): Promise<string[]> {
    const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    const { bytes } = await admin.send({ target: "/apis", headers: { accept } });
    const found: { items: { metadata: { name: string }; versions: { freshness?: string }[] }[] } = JSON.parse(
      bytes.toString(),
    );
    return found.items
      .filter(({ versions }) => versions.some(({ freshness }) => freshness === "Stale"))
      .map(({ metadata }) => metadata.name);
  }

  test("a killed gateway blocks namespace deletion until the controller, which saw no renewal for thirty seconds, withdraws it", async () => {
    const gateway = await lab.gateway("killed");
    await lab.aggregated();
    await gateway.abandon();
    assert.deepEqual(await controllerLooks(20_000), ["Kept", "Kept", "Kept"], "it may be restarting");
    await eventually(async () => (await admin.send({ target: `/apis/${GROUP_VERSION}` })).status === 503);
    await hangingNamespace("hanging");
    assert.ok((await controllerLooks(40_000)).includes("Withdrawn"));
    await namespaceGone("hanging");
    assert.equal((await controllerLooks(11 * MINUTE)).at(-1), "Absent");
    const leases = await lab.kube.resource(LEASES).list({ namespace: SYSTEM, signal: lab.signal });
    assert.deepEqual(leases.items, [], "the Lease of the long dead is removed");
  });

  /**
   * A namespace whose deletion hangs, since kube-apiserver cannot tell what of a dead backend's group is in it. Until it has
   * polled the dead backend, its discovery document still lists the group as fresh.
   */
  async function hangingNamespace(name: string): Promise<void> {
    await eventually(async () => (await staleGroups()).includes(GROUP), {
      timeoutMs: 2 * MINUTE,
      intervalMs: 500,
      what: "kube-apiserver calling the group stale",
    });
    await deleteNamespace(name);
    const conditions = ["get", "namespace", name, "-o", "jsonpath={.status.conditions}"];
    await eventually(async () => /DiscoveryFailed/.test(await lab.kubectl(...conditions)), {
      timeoutMs: 60_000,
      what: `namespace ${name} hanging on discovery`,
    });
  }

  test("when gateways and controllers were all killed, the runbook's one command frees the cluster, and the next start registers again", async () => {
    const killed = await lab.gateway("everything");
    await lab.aggregated();
    await killed.abandon();
    await hangingNamespace("stuck");
    await lab.kubectl("delete", "apiservice", API_SERVICE);
    await namespaceGone("stuck");
    const next = await lab.gateway("next-start");
    await lab.aggregated();
    await eventually(served, { what: "the next start serving through kube-apiserver" });
    await next.stop();
    assert.equal(await lab.registered(), false);
  });

  test("a gateway whose registered neighbour died without a word takes over when the Lease is stale", async () => {
    const authority = makeAuthority({ commonName: "test", notBefore: Date.now(), notAfter: Date.now() + MINUTE });
    const registration = (gateway: string, port: number, clock: Clock) =>
      new Registration({
        kube: lab.kube,
        clock,
        logger: pino({ level: "silent" }),
        namespace: SYSTEM,
        gateway,
        port,
        backend: { kind: "External", host: "localhost" },
        offers: { aggregation: true, stamp: false },
        caBundle: authority.certificate,
      });
    const port = async (): Promise<number> =>
      Number(await lab.kubectl("get", "apiservice", API_SERVICE, "-o", "jsonpath={.spec.service.port}"));
    await registration("dead", 50_001, movedClock()).assert(lab.signal);
    assert.equal(await port(), 50_001);
    const clock = movedClock(-60 * MINUTE);
    const survivor = registration("alive", 50_002, clock);
    await survivor.assert(lab.signal);
    assert.equal(await port(), 50_001, "both serve: no tug of war");
    for (let looks = 0; looks < 4; looks++) {
      clock.move(10_000);
      await survivor.assert(lab.signal);
    }
    assert.equal(await port(), 50_002);
    const version = await lab.kubectl(
      "get",
      "apiservice",
      API_SERVICE,
      "-o",
      "jsonpath={.metadata.generation} {.spec}",
    );
    await survivor.assert(lab.signal);
    assert.equal(
      await lab.kubectl("get", "apiservice", API_SERVICE, "-o", "jsonpath={.metadata.generation} {.spec}"),
      version,
    );
    assert.ok((await controllerLooks(40_000)).includes("Withdrawn"));
  });

  test("a gateway that renews is alive though its clock is an hour behind", async () => {
    const authority = makeAuthority({ commonName: "test", notBefore: Date.now(), notAfter: Date.now() + MINUTE });
    const registration = new Registration({
      kube: lab.kube,
      clock: movedClock(-60 * MINUTE),
      logger: pino({ level: "silent" }),
      namespace: SYSTEM,
      gateway: "behind",
      port: 50_003,
      backend: { kind: "External", host: "localhost" },
      offers: { aggregation: true, stamp: false },
      caBundle: authority.certificate,
    });
    const clock = movedClock();
    const gateways = new GatewayWatch({ leases: new GatewayLeases(lab.kube, SYSTEM), clock });
    for (let renewals = 0; renewals < 6; renewals++) {
      await registration.assert(lab.signal);
      assert.equal(await withdrawIfNoGateway(lab.kube, { gateways, namespace: SYSTEM, signal: lab.signal }), "Kept");
      clock.move(10_000);
    }
    assert.ok((await controllerLooks(40_000)).includes("Withdrawn"), "it is dead when it no longer renews");
  });

  test("the way to this machine is put back when somebody removes it alone", async () => {
    const gateway = await lab.gateway("lost-way");
    await lab.aggregated();
    const services = lab.kube.resource(SERVICES);
    const ref = { namespace: SYSTEM, name: GATEWAY_SERVICE };
    const { uid } = (await services.get(ref, { signal: lab.signal })).metadata;
    await services.delete(ref, { signal: lab.signal });
    await eventually(async () => (await services.get(ref, { signal: lab.signal })).metadata.uid !== uid, {
      what: "a new way",
    });
    await eventually(served, { what: "serving again" });
    await gateway.stop();
  });

  test("an APIService that somebody else made is not withdrawn", async () => {
    const ref = { name: API_SERVICE };
    const spec = { group: GROUP, version: "v1alpha1", groupPriorityMinimum: 100, versionPriority: 10 };
    const object = { apiVersion: "apiregistration.k8s.io/v1", kind: "APIService", metadata: ref };
    const service = { namespace: SYSTEM, name: "other", port: 443 };
    await lab.kube
      .resource(API_SERVICES)
      .apply(ref, { ...object, spec: { ...spec, insecureSkipTLSVerify: true, service } }, { signal: lab.signal });
    assert.ok(!(await controllerLooks(40_000)).includes("Withdrawn"));
    await lab.kube.resource(API_SERVICES).delete(ref, { signal: lab.signal });
  });

  test("with aggregation off nothing is registered and the direct endpoint serves everything", async () => {
    const gateway = await lab.gateway("direct-only", {}, { aggregated: false });
    assert.equal(await lab.registered(), false);
    const account = await lab.serviceAccount("direct-only");
    await lab.grant(account.user, { apiGroups: [GROUP], resources: ["*"], verbs: ["*"] });
    const direct = lab.direct(gateway, { token: account.token });
    const answer = await direct.send({
      method: "POST",
      target: sessionPath("box", "exec"),
      body: { command: ["echo", "hi"] },
    });
    assert.equal(Buffer.from(String(answer.json["stdout"]), "base64").toString(), "hi");
    await gateway.stop();
  });

  test("a new authority is trusted by kube-apiserver and served without a restart", async () => {
    const gateway = await lab.gateway("rotating");
    await lab.aggregated();
    const old = gateway.caBundle;
    await lab.kube.resource(SECRETS).delete({ namespace: SYSTEM, name: SERVING_SECRET }, { signal: lab.signal });
    await eventually(() => gateway.caBundle !== old, { what: "a new serving certificate" });
    const health = await lab.direct(gateway).send({ target: "/readyz" });
    assert.equal(health.status, 200, "a client that trusts the new authority alone");
    const bundle = await lab.kubectl("get", "apiservice", API_SERVICE, "-o", "jsonpath={.spec.caBundle}");
    assert.equal(Buffer.from(bundle, "base64").toString(), gateway.caBundle);
    await eventually(served, { what: "kube-apiserver going on to serve" });
    await gateway.stop();
  });

  test("where the API server stamps creators by itself there is no webhook; where it could and nobody bound the policy, there is", async () => {
    const policy = new URL("../../../crds/generated/creator-stamp.yaml", import.meta.url).pathname;
    const webhooks = async (): Promise<string> =>
      (await lab.kubectl("get", "mutatingwebhookconfigurations", "-o", "name")).trim();
    const gateway = await lab.gateway("upgraded", { creatorStamp: "Enabled" });
    await eventually(async () => (await webhooks()) !== "", { what: "the webhook in place of a policy" });
    await lab.kubectl("apply", "--server-side", "-f", policy);
    await eventually(async () => (await webhooks()) === "", { what: "the webhook giving way to the policy" });
    await lab.kubectl("delete", "-f", policy);
    await eventually(async () => (await webhooks()) !== "", { what: "the webhook coming back" });
    await gateway.stop();
    assert.equal(await webhooks(), "");
  });

  test("a gateway outlives an outage of the API server and serves again afterwards", async () => {
    const gateway = await lab.gateway("patient");
    await lab.aggregated();
    await lab.cluster.restartApiServer();
    await eventually(served, { timeoutMs: 60_000, what: "serving again after the restart" });
    await gateway.stop();
    assert.equal(await lab.registered(), false);
  });
});
