/** Who created an object is kept, and nobody takes a Secret they may not read. All of it by policies in the API server. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import {
  ADOPT_HEAD,
  CREATED_BY,
  SNAPSHOT_REQUESTED,
  SNAPSHOT_REQUESTED_BY,
  sandboxSchema,
  worldSchema,
} from "@agentworlds/crds";
import { z } from "zod";
import { controlPlane, eventually } from "../../kit/index.ts";
import { CREATORS, sandboxOf, stampOf } from "../gateway/creators.ts";
import {
  type Answer,
  Api,
  createNamespace,
  installKinds,
  installPolicies,
  kubectl,
  kubectlOk,
  manifest,
  pathOf,
} from "./api.ts";

// An own control plane: one object must be older than the policies, and a policy is taken away at the end.
const cluster = await controlPlane({ own: true });
await using setup = new AsyncDisposableStack();
setup.use(cluster);
const admin = setup.use(await Api.open(cluster.kubeconfigPath));
const identities = {
  alice: await cluster.kubeconfigFor({ user: "alice" }),
  bob: await cluster.kubeconfigFor({ user: "bob" }),
  // A name that would break out of a JSON string, were it not escaped.
  mallory: await cluster.kubeconfigFor({ user: 'm"allory\\","agent":"x' }),
  tabbed: await cluster.kubeconfigFor({ user: "tab\tbed" }),
  serviceAccount: await cluster.kubeconfigFor({ user: "system:serviceaccount:ci:runner" }),
};
const alice = setup.use(await Api.open(identities.alice));
const bob = setup.use(await Api.open(identities.bob));
const mallory = setup.use(await Api.open(identities.mallory));
const tabbed = setup.use(await Api.open(identities.tabbed));
const serviceAccount = setup.use(await Api.open(identities.serviceAccount));

await installKinds(cluster, admin);
const namespace = await createNamespace(admin, "admission");
await grant(
  "everyone",
  [{ apiGroups: ["agentworlds.dev"], resources: ["*"], verbs: ["*"] }],
  ["alice", "bob", "tab\tbed", 'm"allory\\","agent":"x', "system:serviceaccount:ci:runner"],
);
await grant(
  "alice-reads",
  [{ apiGroups: [""], resources: ["secrets"], resourceNames: ["hers", "other", ...numbered(15)], verbs: ["get"] }],
  ["alice"],
);
assert.equal((await create(admin, { kind: "World", name: "older", spec: world() })).status, 201);
await installPolicies(cluster);
await eventually(async () => stampIn(await dryRun(admin, "World", world())) !== undefined, {
  what: "the stamp is in force",
});
await eventually(async () => (await dryRun(bob, "Sandbox", takes("hers"))).status === 403, {
  what: "the Secret rule is in force",
});
const parts = setup.move();
after(() => parts.disposeAsync());

async function grant(name: string, rules: unknown[], users: string[]): Promise<void> {
  const rbac = `/apis/rbac.authorization.k8s.io/v1/namespaces/${namespace}`;
  await admin.send("POST", `${rbac}/roles`, { metadata: { name }, rules });
  const answer = await admin.send("POST", `${rbac}/rolebindings`, {
    metadata: { name },
    roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name },
    subjects: users.map((user) => ({ kind: "User", apiGroup: "rbac.authorization.k8s.io", name: user })),
  });
  assert.equal(answer.status, 201, answer.message);
}

/** s0, s1, … */
function numbered(count: number): string[] {
  return Array.from({ length: count }, (_, index) => `s${index}`);
}

function world(): unknown {
  return { from: { image: "busybox:1.36" } };
}

function takes(...secrets: string[]): unknown {
  return {
    world: { name: "w" },
    env: secrets.map((name, index) => ({ name: `V${index}`, secretKeyRef: { name, key: "token" } })),
  };
}

function create(
  api: Api,
  {
    kind,
    name,
    spec,
    annotations,
  }: { kind: string; name: string; spec: unknown; annotations?: Record<string, string> },
): Promise<Answer> {
  const metadata = { name, ...(annotations === undefined ? {} : { annotations }) };
  return api.send("POST", pathOf(kind, { namespace }), { ...manifest(kind, name, spec), metadata });
}

function dryRun(api: Api, kind: string, spec: unknown): Promise<Answer> {
  return api.send("POST", `${pathOf(kind, { namespace })}?dryRun=All`, manifest(kind, "dry-run", spec));
}

/** The stamp as text. */
function stampIn(answer: Answer): string | undefined {
  const parsed = z
    .object({ metadata: z.object({ annotations: z.record(z.string(), z.string()).optional() }) })
    .parse(answer.body);
  return parsed.metadata.annotations?.[CREATED_BY];
}

const creatorIn = (answer: Answer): unknown => JSON.parse(stampIn(answer) ?? "null");
const at = (kind: string, name: string): string => pathOf(kind, { namespace, name });
const FORGED = { [CREATED_BY]: '{"user":"somebody-else"}' };

test("the creator is the authenticated user; what the request claims is overwritten", async () => {
  assert.deepEqual(
    creatorIn(await create(alice, { kind: "World", name: "forged", spec: world(), annotations: FORGED })),
    { user: "alice" },
  );
  assert.deepEqual(
    creatorIn(await create(alice, { kind: "World", name: "beside", spec: world(), annotations: { other: "kept" } })),
    { user: "alice" },
  );
  assert.deepEqual(creatorIn(await create(alice, { kind: "World", name: "empty", spec: world(), annotations: {} })), {
    user: "alice",
  });
  const nothing = await alice.send("POST", pathOf("World", { namespace }), {
    ...manifest("World", "null", world()),
    metadata: { name: "null", annotations: null },
  });
  assert.deepEqual(creatorIn(nothing), { user: "alice" });
});

test("another version becomes head by the word of somebody with that right only; other writers of the World change the rest", async () => {
  const patch = (api: Api, annotations: Record<string, string | null>) =>
    api.patch(`${at("World", "beside")}?dryRun=All`, { metadata: { annotations } });
  const wish = { [ADOPT_HEAD]: `sha256:${"a".repeat(64)}` };
  const refused = await patch(bob, wish);
  assert.equal(refused.status, 403);
  assert.match(refused.message, /bob may not do: create on worlds\.sessions\.agentworlds\.dev\/adopt is needed/);
  const born = { ...manifest("World", "born", world()), metadata: { name: "born", annotations: wish } };
  assert.equal((await bob.send("POST", `${pathOf("World", { namespace })}?dryRun=All`, born)).status, 403);
  assert.equal((await patch(bob, { other: "changed" })).status, 200);
  await grant(
    "adopters",
    [{ apiGroups: ["sessions.agentworlds.dev"], resources: ["worlds/adopt"], verbs: ["create"] }],
    ["alice"],
  );
  await eventually(async () => (await patch(alice, wish)).status === 200, { what: "the right is in force" });
});

/** What an answer's annotations say of a snapshot that is asked for. */
function askedIn(answer: Answer): (string | undefined)[] {
  assert.ok(answer.status < 300, answer.message);
  const annotations = sandboxSchema.parse(answer.body).metadata.annotations ?? {};
  return [annotations[SNAPSHOT_REQUESTED], annotations[SNAPSHOT_REQUESTED_BY]];
}
const annotate = (api: Api, name: string, annotations: Record<string, string | null>): Promise<Answer> =>
  api.patch(at("Sandbox", name), { metadata: { annotations } });
const ask = (api: Api, id: string | null): Promise<Answer> => annotate(api, "asked", { [SNAPSHOT_REQUESTED]: id });

describe("a snapshot that is asked for by annotation", () => {
  before(async () => {
    await create(alice, { kind: "Sandbox", name: "asked", spec: { image: "busybox" } });
    await grant(
      "snapshotters",
      [{ apiGroups: ["sessions.agentworlds.dev"], resources: ["sandboxes/snapshot"], verbs: ["create"] }],
      ["alice", "tab\tbed"],
    );
    let tries = 0;
    await eventually(
      async () => {
        const answer = await ask(alice, `try-${tries++}`);
        return answer.status === 200 && askedIn(answer)[1] === "alice";
      },
      { what: "right and stamp are in force" },
    );
  });

  test("takes the right to the verb: who may write the Sandbox alone is told what is missing, also at its creation", async () => {
    const refused = await ask(bob, "his");
    assert.equal(refused.status, 403);
    assert.match(
      refused.message,
      /bob may not do: create on sandboxes\.sessions\.agentworlds\.dev\/snapshot is needed/,
    );
    const born = {
      kind: "Sandbox",
      name: "born",
      spec: { image: "busybox" },
      annotations: { [SNAPSHOT_REQUESTED]: "x" },
    };
    assert.equal((await create(bob, born)).status, 403);
    assert.deepEqual(askedIn(await create(alice, born)), ["x", "alice"]);
  });

  test("names whoever sets it, whatever the request claims, and keeps the name while others write the rest", async () => {
    const forged = { [SNAPSHOT_REQUESTED]: "second", [SNAPSHOT_REQUESTED_BY]: "bob" };
    assert.deepEqual(askedIn(await annotate(alice, "asked", forged)), ["second", "alice"]);
    for (const api of [bob, admin]) {
      assert.deepEqual(askedIn(await annotate(api, "asked", { other: "changed" })), ["second", "alice"]);
      assert.deepEqual(askedIn(await annotate(api, "asked", { [SNAPSHOT_REQUESTED_BY]: "bob" })), ["second", "alice"]);
      assert.deepEqual(askedIn(await annotate(api, "asked", { [SNAPSHOT_REQUESTED_BY]: null })), ["second", "alice"]);
    }
    assert.deepEqual(askedIn(await annotate(admin, "asked", { [SNAPSHOT_REQUESTED]: "third" })), [
      "third",
      "local-admin",
    ]);
    assert.deepEqual(askedIn(await ask(bob, null)), [undefined, undefined], "to take it away asks for nothing");
    assert.deepEqual(askedIn(await annotate(bob, "asked", { [SNAPSHOT_REQUESTED_BY]: "bob" })), [undefined, undefined]);
  });

  for (const [what, id] of [
    ["empty", ""],
    ["of 65 characters", "x".repeat(65)],
    ["with a space", "two words"],
    ["that begins with a dot", ".hidden"],
  ] as const) {
    test(`an id ${what} is refused`, async () => {
      const refused = await ask(alice, id);
      assert.equal(refused.status, 422);
      assert.match(refused.message, /must be an id of 1 to 64 letters, digits/);
    });
  }

  test("an id of another verb is refused, one of a snapshot is the same wish, and the operator's patches ask for nothing", async () => {
    const request = (id: string, verb: string) => ({ id, verb, user: "alice", at: "2031-01-01T00:00:00.000Z" });
    const requests = [request("closing", "Close"), request("same", "Snapshot")];
    const status = { observedGeneration: 1, requests, snapshotsRequested: ["same"] };
    assert.equal((await admin.patch(`${at("Sandbox", "asked")}/status`, { status })).status, 200);
    const refused = await ask(alice, "closing");
    assert.equal(refused.status, 422);
    assert.match(refused.message, /was used for another verb of this Sandbox/);
    assert.deepEqual(askedIn(await ask(alice, "same")), ["same", "alice"]);
    const operator = { metadata: { finalizers: ["agentworlds.dev/sandbox"] } };
    assert.equal((await bob.patch(at("Sandbox", "asked"), operator)).status, 200);
    assert.equal((await bob.patch(`${at("Sandbox", "asked")}/status`, { status: { boot: 1 } })).status, 200);
    assert.equal((await bob.patch(at("Sandbox", "asked"), { metadata: { finalizers: null } })).status, 200);
  });
});

test("a hook runs in everybody's sessions: only who may run commands in all of them sets it or changes it", async () => {
  const command = ["sh", "-c", "env > /x"];
  const hooked = (hook: unknown) => ({ spec: { snapshot: { hook } } });
  const refused = /bob may not do: create on sandboxes\.sessions\.agentworlds\.dev\/exec is needed in this namespace/;
  const setsNew = await dryRun(bob, "World", { from: { image: "busybox:1.36" }, ...hooked({ command }).spec });
  assert.equal(setsNew.status, 403, setsNew.message);
  assert.match(setsNew.message, refused);
  await create(bob, { kind: "World", name: "hooked", spec: world() });
  const path = at("World", "hooked");
  assert.match((await bob.patch(path, hooked({ command }))).message, refused);

  const execs = [{ apiGroups: ["sessions.agentworlds.dev"], resources: ["sandboxes/exec"], verbs: ["create"] }];
  await grant("execs-in-one", [{ ...execs[0], resourceNames: ["his"] }], ["bob"]);
  await grant("execs", execs, ["alice"]);
  await eventually(async () => (await alice.patch(path, hooked({ command }))).status === 200, {
    what: "the right is in force",
  });
  for (const change of [
    { command: ["true"] },
    { command: null, timeoutSeconds: 30 },
    { timeoutSeconds: 31 },
    { onFailure: "Abort" },
  ]) {
    const answer = await bob.patch(path, hooked(change));
    assert.ok([403, 422].includes(answer.status), `${JSON.stringify(change)}: ${answer.message}`);
  }
  assert.match((await bob.patch(path, hooked({ timeoutSeconds: 31 }))).message, refused);

  // Whoever changes something else, also by stating the whole object again, and the operator's own patches.
  const whole = worldSchema.parse((await bob.send("GET", path)).body);
  const again = { ...whole, spec: { ...whole.spec, description: "changed" } };
  assert.equal((await bob.send("PUT", path, again)).status, 200);
  for (const change of [
    { spec: { retention: { keepVersions: 3 } } },
    { metadata: { finalizers: ["agentworlds.dev/world"] } },
    { metadata: { finalizers: null } },
  ]) {
    const answer = await bob.patch(path, change);
    assert.equal(answer.status, 200, answer.message);
  }
  assert.equal((await bob.patch(`${path}/status`, { status: { nextVersion: 1 } })).status, 200);
  const removed = await bob.patch(path, { spec: { snapshot: null } });
  assert.equal(removed.status, 200, removed.message);
  assert.match((await bob.patch(path, hooked({ command }))).message, refused);
});

test("other annotations stay when the stamp is set", async () => {
  const parsed = worldSchema.parse((await alice.send("GET", at("World", "beside"))).body);
  assert.equal(parsed.metadata.annotations?.["other"], "kept");
});

test("spec.agent adds the agent and its conversation", async () => {
  const spec = { world: { name: "w" }, agent: { id: "claude", conversation: 'c-1"\\' } };
  const answer = await create(alice, { kind: "Sandbox", name: "agent", spec });
  assert.deepEqual(creatorIn(answer), { user: "alice", agent: "claude", conversation: 'c-1"\\' });
});

test("a ServiceAccount that states no agent is one; a person is none", async () => {
  const expected = { user: "system:serviceaccount:ci:runner", agent: "serviceaccount:ci:runner" };
  assert.deepEqual(
    creatorIn(await create(serviceAccount, { kind: "World", name: "by-account", spec: world() })),
    expected,
  );
  assert.deepEqual(
    creatorIn(await create(serviceAccount, { kind: "Sandbox", name: "by-account", spec: { image: "busybox" } })),
    expected,
  );
  const stated = await create(serviceAccount, {
    kind: "Sandbox",
    name: "by-agent",
    spec: { image: "busybox", agent: { id: "claude" } },
  });
  assert.deepEqual(creatorIn(stated), { ...expected, agent: "claude" });
});

test("a user name cannot break out of its JSON string", async () => {
  const answer = await create(mallory, { kind: "World", name: "by-mallory", spec: world() });
  assert.deepEqual(creatorIn(answer), { user: 'm"allory\\","agent":"x' });
});

for (const creator of CREATORS) {
  test(`the policy stamps ${creator.what} with the bytes that the webhook would write`, async () => {
    const kubeconfig = await cluster.kubeconfigFor({ user: creator.user, groups: ["system:masters"] });
    const as = creator.as === undefined ? [] : ["--as", creator.as, "--as-group", "system:masters"];
    const path = `jsonpath={.metadata.annotations.${CREATED_BY.replaceAll(".", "\\.")}}`;
    const words = ["create", "--dry-run=server", "-f", "-", "-o", path, ...as];
    const text = sandboxOf(creator, { name: "contract", namespace });
    assert.equal(await kubectlOk(kubeconfig, words, text), stampOf(creator));
  });
}

test("a control character in a user name is replaced and does not break the JSON", async () => {
  const answer = await create(tabbed, { kind: "World", name: "by-tabbed", spec: world() });
  assert.deepEqual(creatorIn(answer), { user: "tab\ufffdbed" });
});

test("a malformed agent is the schema's business, in the schema's words", async () => {
  const answer = await create(alice, {
    kind: "Sandbox",
    name: "malformed",
    spec: { image: "busybox", agent: "claude" },
  });
  assert.equal(answer.status, 422);
  assert.match(answer.message, /spec\.agent in body must be of type object/);
});

test("another user can neither change nor remove the stamp, nor anybody else", async () => {
  await create(alice, { kind: "Sandbox", name: "hers", spec: { image: "busybox" } });
  const stamp = '{"user":"alice"}';
  for (const api of [bob, alice, admin]) {
    for (const value of ['{"user":"bob"}', "", null]) {
      const answer = await api.patch(at("Sandbox", "hers"), { metadata: { annotations: { [CREATED_BY]: value } } });
      assert.equal(answer.status, 200, answer.message);
      assert.equal(stampIn(answer), stamp);
    }
    const answer = await api.patch(at("Sandbox", "hers"), { metadata: { annotations: null } });
    assert.equal(stampIn(answer), stamp);
  }
});

test("a replace without the annotation keeps the stamp", async () => {
  await create(alice, { kind: "World", name: "replaced", spec: world() });
  const { resourceVersion } = worldSchema.parse((await bob.send("GET", at("World", "replaced"))).body).metadata;
  const replacement = {
    ...manifest("World", "replaced", { from: { image: "busybox:1.36" }, description: "replaced" }),
    metadata: { name: "replaced", resourceVersion },
  };
  const answer = await bob.send("PUT", at("World", "replaced"), replacement);
  assert.equal(answer.status, 200, answer.message);
  assert.equal(worldSchema.parse(answer.body).spec.description, "replaced");
  assert.deepEqual(creatorIn(answer), { user: "alice" });
});

for (const mode of ["client-side", "server-side"] as const) {
  for (const [what, annotations] of [
    ["a manifest", undefined],
    ["a manifest that claims another creator", FORGED],
  ] as const) {
    test(`${what} applied again, ${mode}, writes nothing and shows no drift`, async () => {
      const name = `applied-${mode}${annotations === undefined ? "" : "-forged"}`;
      const metadata = { name, namespace, ...(annotations === undefined ? {} : { annotations }) };
      const text = JSON.stringify({ ...manifest("World", name, world()), metadata });
      const flags = mode === "server-side" ? ["--server-side"] : [];
      const apply = async () => {
        await kubectlOk(identities.alice, ["apply", ...flags, "-f", "-"], text);
        return worldSchema.parse((await admin.send("GET", at("World", name))).body);
      };
      const created = await apply();
      // The second time the server stores the status default, which it only showed before; a Runtime, which has no
      // stamp, does the same.
      const settled = await apply();
      const again = await apply();
      assert.equal(again.metadata.resourceVersion, settled.metadata.resourceVersion);
      for (const object of [created, settled, again]) {
        assert.equal(object.metadata.annotations?.[CREATED_BY], '{"user":"alice"}');
        assert.equal(object.metadata.generation, 1);
      }
      if (annotations !== undefined) return;
      const diff = await kubectl(identities.alice, ["diff", ...flags, "-f", "-"], text);
      assert.equal(diff.code, 0, diff.stdout + diff.stderr);
    });
  }
}

test("an object older than the policies is not refused, and nobody can stamp it afterwards", async () => {
  const path = at("World", "older");
  assert.equal((await bob.patch(path, { spec: { description: "changed" } })).status, 200);
  assert.equal((await bob.patch(path, { metadata: { finalizers: ["agentworlds.dev/world"] } })).status, 200);
  assert.equal((await bob.patch(`${path}/status`, { status: { nextVersion: 1 } })).status, 200);
  const answer = await bob.patch(path, { metadata: { annotations: FORGED } });
  assert.equal(answer.status, 200, answer.message);
  assert.equal(stampIn(answer), undefined);
  assert.equal((await bob.patch(path, { metadata: { finalizers: null } })).status, 200);
});

test("who may not read a Secret cannot put it into a Sandbox", async () => {
  const answer = await create(bob, { kind: "Sandbox", name: "taken", spec: takes("hers") });
  assert.equal(answer.status, 403);
  assert.match(
    answer.message,
    /spec\.env takes a value from the Secret hers, which bob may not read: get on secrets\/hers is needed/,
  );
  assert.equal(
    (await create(alice, { kind: "Sandbox", name: "taken", spec: takes("hers", "other", "hers") })).status,
    201,
  );
});

test("one unreadable Secret among readable ones is named", async () => {
  const answer = await create(alice, { kind: "Sandbox", name: "mixed", spec: takes("hers", "other", "foreign") });
  assert.equal(answer.status, 403);
  assert.match(answer.message, /the Secret foreign, which alice may not read/);
});

test("changing the environment needs the right too; whatever else changes does not", async () => {
  const path = at("Sandbox", "taken");
  const { spec } = sandboxSchema.parse((await bob.send("GET", path)).body);
  const changed = await bob.patch(path, { spec: { env: [...(spec.env ?? []), { name: "MORE", value: "1" }] } });
  assert.equal(changed.status, 403);
  assert.match(changed.message, /the Secret hers, which bob may not read/);
  for (const change of [
    { spec: { mode: "Hibernated" } },
    { metadata: { finalizers: ["agentworlds.dev/compute"] } },
    { metadata: { labels: { a: "b" } } },
    { metadata: { finalizers: null } },
  ]) {
    const answer = await bob.patch(path, change);
    assert.equal(answer.status, 200, answer.message);
  }
  assert.equal((await bob.patch(`${path}/status`, { status: { boot: 1 } })).status, 200);
  const removed = await bob.patch(path, { spec: { env: null } });
  assert.equal(removed.status, 200, removed.message);
});

test("a Sandbox takes variables from 16 Secrets and no more", async () => {
  const secrets = numbered(17);
  const full = await create(admin, { kind: "Sandbox", name: "sixteen", spec: takes(...secrets.slice(0, 16)) });
  assert.equal(full.status, 201, full.message);
  const answer = await create(admin, { kind: "Sandbox", name: "seventeen", spec: takes(...secrets) });
  assert.match(answer.message, /spec\.env may take values from at most 16 Secrets/);
  // Many variables of few Secrets cost no more.
  const many = await dryRun(admin, "Sandbox", takes(...Array.from({ length: 64 }, (_, index) => `s${index % 16}`)));
  assert.equal(many.status, 201, many.message);
});

test("the last of 16 Secrets is checked like the first", async () => {
  const answer = await create(alice, { kind: "Sandbox", name: "last", spec: takes(...numbered(15), "foreign") });
  assert.match(answer.message, /the Secret foreign, which alice may not read/);
});

test("a host in use cannot be removed from its Runtime; one that is not can, and both can be changed", async () => {
  const path = at("Runtime", "used");
  const host = (name: string, port = 2375) => ({ name, endpoint: `tcp://10.0.0.1:${port}` });
  const setHosts = (...hosts: ReturnType<typeof host>[]) => admin.patch(path, { spec: { docker: { hosts } } });
  const setUsed = async (used: number) => {
    const hosts = [
      { name: "a", state: "Reachable", used },
      { name: "b", state: "Reachable", used: 0 },
    ];
    const answer = await admin.patch(`${path}/status`, { status: { observedGeneration: 1, hosts } });
    assert.equal(answer.status, 200, answer.message);
  };
  await create(admin, { kind: "Runtime", name: "used", spec: { docker: { hosts: [host("a"), host("b")] } } });
  await setUsed(2);
  const refused = await setHosts(host("b"));
  assert.equal(refused.status, 422, refused.message);
  assert.match(refused.message, /hosts in use cannot be removed: a; cordon the Runtime and wait/);
  const answers = [
    await setHosts(host("a"), host("b", 2376)),
    await setHosts(host("a", 2376)),
    await setHosts(host("a")),
  ];
  for (const answer of answers) assert.equal(answer.status, 200, answer.message);
  await setUsed(0);
  const free = await setHosts(host("b"));
  assert.equal(free.status, 200, free.message);
});

test("where nothing stamps who asks for a snapshot, a name beside the id must be true, and may be left out", async () => {
  await admin.send(
    "DELETE",
    "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings/snapshot-requested-by.agentworlds.dev",
  );
  await create(alice, { kind: "Sandbox", name: "unstamped-wish", spec: { image: "busybox" } });
  const say = (api: Api, annotations: Record<string, string | null>) => annotate(api, "unstamped-wish", annotations);
  const refused = await eventually(
    async () => {
      const answer = await say(alice, { [SNAPSHOT_REQUESTED]: "a", [SNAPSHOT_REQUESTED_BY]: "bob" });
      return answer.status === 200 ? undefined : answer;
    },
    { what: "the mutation is no longer in force" },
  );
  assert.equal(refused.status, 403);
  assert.match(refused.message, /names whoever sets agentworlds\.dev\/snapshot-requested/);
  assert.deepEqual(askedIn(await say(alice, { [SNAPSHOT_REQUESTED]: "b", [SNAPSHOT_REQUESTED_BY]: "alice" })), [
    "b",
    "alice",
  ]);
  assert.equal((await say(admin, { [SNAPSHOT_REQUESTED]: "c" })).status, 403, "the name beside it is another's");
  assert.equal((await say(bob, { [SNAPSHOT_REQUESTED_BY]: "bob" })).status, 403);
  assert.deepEqual(askedIn(await say(bob, { other: "changed" })), ["b", "alice"]);
  assert.deepEqual(askedIn(await say(bob, { [SNAPSHOT_REQUESTED]: null })), [undefined, "alice"]);
  assert.deepEqual(askedIn(await say(bob, { other: "changed again" })), [undefined, "alice"]);
  assert.deepEqual(askedIn(await say(alice, { [SNAPSHOT_REQUESTED]: "d", [SNAPSHOT_REQUESTED_BY]: null })), [
    "d",
    undefined,
  ]);
});

test("where the stamp is not put back, a change of it is refused", async () => {
  await create(alice, { kind: "World", name: "kept", spec: world() });
  await admin.send(
    "DELETE",
    "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings/created-by.agentworlds.dev",
  );
  const answer = await eventually(
    async () => {
      const refused = await bob.patch(at("World", "kept"), { metadata: { annotations: FORGED } });
      return refused.status === 200 ? undefined : refused;
    },
    { what: "the mutation is no longer in force" },
  );
  assert.match(
    answer.message,
    /the annotation agentworlds\.dev\/created-by names the creator and cannot be set, changed or removed/,
  );
});

test("where nothing stamps, only who states truly who they are creates; the refusal says what to state", async () => {
  const claims = (api: Api, name: string, stamp?: string, spec: unknown = { image: "busybox" }) =>
    create(api, {
      kind: "Sandbox",
      name,
      spec,
      ...(stamp === undefined ? {} : { annotations: { [CREATED_BY]: stamp } }),
    });
  for (const api of [bob, admin]) {
    for (const stamp of ['{"user":"alice"}', "", "no JSON"]) {
      const refused = await claims(api, "claimed", stamp);
      assert.equal(refused.status, 403, refused.message);
      assert.match(refused.message, /the annotation agentworlds\.dev\/created-by names the creator.*leave it out/);
    }
  }
  // An agent is part of the stamp: it must be the one that the spec names.
  const asAgent = { image: "busybox", agent: { id: "claude" } };
  assert.equal((await claims(bob, "unnamed-agent", '{"user":"bob"}', asAgent)).status, 403);
  const stated = await claims(bob, "named-agent", '{"user":"bob","agent":"claude"}', asAgent);
  assert.equal(stated.status, 201, stated.message);
  const honest = await claims(bob, "honest", '{"user":"bob"}');
  assert.equal(honest.status, 201, honest.message);
  for (const [api, stamp] of [
    [bob, '{"user":"bob"}'],
    [serviceAccount, '{"user":"system:serviceaccount:ci:runner","agent":"serviceaccount:ci:runner"}'],
    [mallory, '{"user":"m\\"allory\\\\\\",\\"agent\\":\\"x"}'],
  ] as const) {
    const unstamped = await claims(api, "unstamped");
    assert.equal(unstamped.status, 403, unstamped.message);
    const said = /set the annotation agentworlds\.dev\/created-by to (.*)$/.exec(unstamped.message)?.[1];
    assert.equal(said, stamp);
    const stated = await claims(api, `unstamped-${stamp.length}`, said);
    assert.equal(stated.status, 201, stated.message);
    assert.equal(stampIn(stated), stamp);
  }
});
