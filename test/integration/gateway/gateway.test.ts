import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import type { SandboxRequestResult } from "@agentworlds/crds";
import { parse } from "yaml";
import { GROUP } from "../../../operator/src/gateway/discovery.ts";
import type { Gateway } from "../../../operator/src/gateway/server.ts";
import { EVENTS } from "../../../operator/src/kube/resource-types.ts";
import type { KubeObject } from "../../../operator/src/reconciler/list-watch.ts";
import { eventually } from "../../kit/index.ts";
import { iso, LAB, type Lab, SYSTEM, sessionPath, startLab } from "./fixture.ts";
import { TORN } from "./memory-driver.ts";
import type { Caller, RawAnswer } from "./raw-request.ts";

const MINUTE = 60_000;

describe("the gateway behind a real kube-apiserver", () => {
  let lab: Lab;
  let gateway: Gateway;
  let owner: Caller;
  let reader: Caller;
  let stranger: Caller;

  before(async () => {
    lab = await startLab();
    gateway = await lab.gateway("gateway-a", { limits: { longPollMs: 1_500, proxiedExecSeconds: 50 } });
    await lab.grant("owner", { apiGroups: [GROUP], resources: ["*"], verbs: ["*"] });
    await lab.grant("reader", { apiGroups: ["*"], resources: ["*"], verbs: ["get", "list", "watch"] });
    owner = await lab.through({ user: "owner" });
    reader = await lab.through({ user: "reader" });
    stranger = await lab.through({ user: "stranger" });
    await lab.aggregated();
  });
  after(() => lab[Symbol.asyncDispose]());

  const post = (who: Caller, name: string, verb: string, body: unknown = {}): Promise<RawAnswer> =>
    who.send({ method: "POST", target: sessionPath(name, verb), body });
  const details = (answer: RawAnswer): Record<string, unknown> =>
    (answer.json["details"] ?? {}) as Record<string, unknown>;
  const text = (value: unknown): string => Buffer.from(String(value), "base64").toString();

  test("exec answers exit code and both streams, binary-safe, with environment and stdin from the body", async () => {
    await lab.sandbox("exec");
    const stdin = randomBytes(4_096);
    const answer = await post(owner, "exec", "exec", {
      command: ["cat"],
      env: { A: "b" },
      workingDir: "/tmp",
      user: "1000:1000",
      stdin: stdin.toString("base64"),
      timeoutSeconds: 5,
    });
    assert.equal(answer.status, 200, answer.bytes.toString());
    assert.equal(answer.json["exitCode"], 0);
    assert.equal(answer.json["timedOut"], false);
    assert.deepEqual(Buffer.from(String(answer.json["stdout"]), "base64"), stdin);
    const seen = lab.driver.execs.at(-1);
    assert.equal(seen?.id, await lab.computeOf("exec"));
    assert.deepEqual(seen?.request.env, { A: "b" });
    assert.equal(seen?.request.workingDir, "/tmp");
    assert.equal(seen?.request.user, "1000:1000");
    assert.equal(seen?.request.timeoutMs, 5_000);
  });

  const badBodies: [name: string, body: unknown, says: RegExp][] = [
    ["no command", {}, /command/],
    ["an unknown field", { command: ["true"], detach: true }, /detach/],
    ["stdin that is not base64", { command: ["cat"], stdin: "*" }, /stdin/],
    ["a NUL in the command", { command: ["a\0b"] }, /NUL/],
    ["no JSON", Buffer.from("{"), /JSON/],
  ];
  for (const [name, body, says] of badBodies) {
    test(`an exec body with ${name} is a 400 that names it`, async () => {
      const answer = await post(owner, "any", "exec", body);
      assert.equal(answer.status, 400);
      assert.match(String(answer.json["message"]), says);
    });
  }

  test("a command longer than kube-apiserver's cut is refused through it and allowed directly", async () => {
    await lab.sandbox("long");
    const refused = await post(owner, "long", "exec", { command: ["echo", "x"], timeoutSeconds: 51 });
    assert.equal(refused.status, 400);
    assert.match(String(refused.json["message"]), /at most 50/);
    const account = await lab.serviceAccount("long");
    await lab.grant(account.user, { apiGroups: [GROUP], resources: ["sandboxes/exec"], verbs: ["create"] });
    const direct = lab.direct(gateway, { token: account.token });
    assert.equal((await post(direct, "long", "exec", { command: ["echo", "x"], timeoutSeconds: 600 })).status, 200);
    const beyond = await post(direct, "long", "exec", { command: ["echo", "x"], timeoutSeconds: 90_000 });
    assert.equal(details(beyond)["code"], "BeyondLifetime");
  });

  test("errors of the runtime become Status objects an agent can act on", async () => {
    await lab.sandbox("errors");
    const missing = await post(owner, "errors", "exec", { command: ["nonsense"] });
    assert.equal(missing.status, 422);
    assert.equal(missing.json["kind"], "Status");
    assert.equal(details(missing)["code"], "CommandNotStarted");
    assert.equal(details(missing)["name"], "errors");
    assert.ok(typeof details(missing)["remediation"] === "string" && typeof details(missing)["cause"] === "string");
    const flood = await post(owner, "errors", "exec", { command: ["flood"] });
    assert.equal(flood.status, 413);
    assert.match(String(details(flood)["remediation"]), /files\?path=/);
    assert.equal((await owner.send({ target: sessionPath("errors", "files?path=/none") })).status, 404);
    assert.equal((await post(owner, "absent", "exec", { command: ["true"] })).status, 404);
  });

  test("long headers arrive through kube-apiserver; headers beyond all measure are a Status, not a 503", async () => {
    await lab.sandbox("headers");
    const withHeader = (length: number): Promise<RawAnswer> =>
      owner.send({ target: sessionPath("headers", ""), headers: { "x-long": "x".repeat(length) } });
    assert.equal((await withHeader(60_000)).status, 200);
    const refused = await withHeader(200_000);
    assert.equal(refused.status, 431, refused.bytes.toString());
    assert.equal(refused.json["kind"], "Status");
    assert.equal(details(refused)["code"], "HeadersTooLarge");
  });

  test("a file of odd bytes under an odd name is put and read back through kube-apiserver", async () => {
    await lab.sandbox("files");
    const content = randomBytes(3_000_000);
    const path = "%2Fwork%2Fa%20b%3B%26%3D%2B%23%FF%25";
    const put = await owner.send({
      method: "PUT",
      target: sessionPath("files", `files?path=${path}&mode=0600`),
      body: content,
    });
    assert.equal(put.status, 200, put.bytes.toString());
    assert.equal(put.json["size"], content.length);
    const got = await owner.send({ target: sessionPath("files", `files?path=${path}`) });
    assert.equal(got.headers["content-length"], String(content.length));
    assert.equal(got.headers["content-type"], "application/octet-stream");
    assert.ok(got.bytes.equals(content));
    const name = Buffer.from("2f776f726b2f6120623b263d2b23ff25", "hex");
    assert.equal(
      (await lab.driver.driver.readFile(await lab.computeOf("files"), name, lab.signal)).size,
      content.length,
    );
  });

  const badPaths: [name: string, query: string, says: RegExp][] = [
    ["missing", "", /path is missing/],
    ["empty", "?path=", /path is missing/],
    ["relative", "?path=etc", /absolute/],
    ["given twice", "?path=/a&path=/b", /more than once/],
    ["holding a NUL", "?path=/a%00", /NUL/],
    ["beside an unknown parameter", "?path=/a&mod=0644", /mod/],
    // kube-apiserver drops the parameter in silence; the gateway must not take that for something else.
    ["with a raw semicolon", "?path=/a;b", /path is missing/],
  ];
  for (const [name, query, says] of badPaths) {
    test(`a file path ${name} is a 400 that says so`, async () => {
      const answer = await owner.send({ target: sessionPath("files", `files${query}`) });
      assert.equal(answer.status, 400);
      assert.match(String(answer.json["message"]), says);
    });
  }

  test("rights decide on every route: the owner may, the reader may only look, the stranger may nothing", async () => {
    await lab.sandbox("rights");
    lab.driver.put(await lab.computeOf("rights"), "/f", Buffer.from("secret"));
    const routes: [method: string, subresource: string, body: unknown, readerMay: boolean][] = [
      ["GET", "", undefined, true],
      ["POST", "exec", { command: ["echo"] }, false],
      ["GET", "files?path=/f", undefined, false],
      ["PUT", "files?path=/g", Buffer.from("x"), false],
      ["POST", "touch", {}, false],
      ["POST", "snapshot", { id: "rights" }, false],
      ["POST", "close", { id: "rights-close" }, false],
    ];
    for (const [method, subresource, body, readerMay] of routes) {
      const wish = { method, target: sessionPath("rights", subresource), body };
      const statuses = {
        reader: (await reader.send(wish)).status,
        stranger: (await stranger.send(wish)).status,
        owner: (await owner.send(wish)).status,
      };
      assert.equal(statuses.reader, readerMay ? 200 : 403, `${method} ${subresource} as reader`);
      assert.equal(statuses.stranger, 403, `${method} ${subresource} as stranger`);
      assert.ok(
        statuses.owner === 200 || statuses.owner === 202,
        `${method} ${subresource} as owner: ${statuses.owner}`,
      );
    }
  });

  test("a role of read verbs passes kube-apiserver with a GET of a file and is stopped by the gateway", async () => {
    const answer = await reader.send({ target: sessionPath("rights", "files?path=/f") });
    assert.equal(answer.status, 403);
    assert.match(String(details(answer)["cause"]), /cannot create resource "sandboxes\/files"/);
  });

  test("direct clients are authenticated by token and authorised on every route", async () => {
    await lab.sandbox("direct");
    lab.driver.put(await lab.computeOf("direct"), "/f", Buffer.from("x"));
    const worker = await lab.serviceAccount("worker");
    const looker = await lab.serviceAccount("looker");
    await lab.grant(worker.user, { apiGroups: [GROUP], resources: ["*"], verbs: ["*"] });
    await lab.grant(looker.user, { apiGroups: ["*"], resources: ["*"], verbs: ["get", "list", "watch"] });
    const callers = {
      worker: lab.direct(gateway, { token: worker.token }),
      looker: lab.direct(gateway, { token: looker.token }),
      forger: lab.direct(gateway, { token: `${worker.token}x` }),
      nobody: lab.direct(gateway),
    };
    const routes: [method: string, subresource: string, body: unknown, lookerGets: number][] = [
      ["GET", "", undefined, 200],
      ["POST", "exec", { command: ["echo"] }, 403],
      ["GET", "files?path=/f", undefined, 403],
      ["PUT", "files?path=/g", Buffer.from("x"), 403],
      ["POST", "touch", {}, 403],
      ["POST", "snapshot", {}, 403],
      ["POST", "close", {}, 403],
    ];
    for (const [method, subresource, body, lookerGets] of routes) {
      const wish = { method, target: sessionPath("direct", subresource), body };
      assert.equal((await callers.nobody.send(wish)).status, 401);
      assert.equal((await callers.forger.send(wish)).status, 401);
      assert.equal((await callers.looker.send(wish)).status, lookerGets, `${method} ${subresource}`);
      assert.ok([200, 202].includes((await callers.worker.send(wish)).status), `${method} ${subresource}`);
    }
  });

  test("X-Remote headers are believed from kube-apiserver's certificate only", async () => {
    await lab.sandbox("forged");
    const { proxyCertPem, proxyKeyPem } = lab.cluster.requestHeader;
    const headers = { "x-remote-user": "owner", "x-remote-group": "system:masters" };
    const target = sessionPath("forged");
    const look = (who: Caller): Promise<RawAnswer> => who.send({ target, headers });
    assert.equal((await look(lab.direct(gateway))).status, 401);
    const other = await lab.cluster.kubeconfigFor({ user: lab.cluster.requestHeader.allowedName });
    const { cert, key } = await clientPairOf(other);
    assert.equal((await look(lab.direct(gateway, { cert, key }))).status, 401, "the right name from another CA");
    const trusted = lab.direct(gateway, { cert: proxyCertPem, key: proxyKeyPem });
    assert.equal((await look(trusted)).status, 200);
    assert.equal((await trusted.send({ target })).status, 401, "no user in the headers");
    const nobody = await lab.serviceAccount("nobody");
    const withToken = lab.direct(gateway, { token: nobody.token });
    assert.equal((await look(withToken)).status, 403, "headers beside a token count for nothing");
  });

  test("whoever impersonates is the other one through kube-apiserver, and refused by name at a gateway's own address", async () => {
    await lab.sandbox("as");
    const target = sessionPath("as");
    assert.match(await lab.kubectl("get", "--raw", target, "--as", "owner"), /expiresAt/);
    await assert.rejects(lab.kubectl("get", "--raw", target, "--as", "stranger"), /Forbidden|forbidden/);
    const { token } = await lab.serviceAccount("impersonator");
    const refused = await lab.direct(gateway, { token }).send({ target, headers: { "Impersonate-User": "owner" } });
    assert.deepEqual([refused.status, details(refused)["code"]], [400, "ImpersonationNotSupported"]);
    assert.match(String(details(refused)["cause"]), /Impersonate-User/);
  });

  test("a Sandbox whose status names another's container lets nobody into it", async () => {
    await lab.namespace("vault");
    await lab.sandbox("victim", { namespace: "vault" });
    const theirs = await lab.computeOf("victim", "vault");
    lab.driver.put(theirs, "/f", Buffer.from("gold"));
    const { status } = await lab.sandbox("forger");
    const compute = { ...status.compute, id: theirs };
    await lab.sandboxes.patchStatus(
      { namespace: LAB, name: "forger" },
      { status: { compute } },
      { signal: lab.signal },
    );
    const before = lab.driver.execs.length;
    const answers = [
      await post(owner, "forger", "exec", { command: ["cat", "/f"] }),
      await owner.send({ target: sessionPath("forger", "files?path=/f") }),
      await owner.send({ method: "PUT", target: sessionPath("forger", "files?path=/f"), body: Buffer.from("x") }),
      await post(owner, "forger", "touch", {}),
    ];
    for (const answer of answers) {
      assert.equal(answer.status, 409, answer.bytes.toString());
      const { code, cause, remediation } = details(answer);
      assert.equal(code, "ForeignCompute");
      assert.match(String(cause), /not its own/);
      assert.match(String(remediation), /wait for Ready/);
    }
    assert.equal(lab.driver.execs.length, before, "the driver was not asked");
    const kept = await lab.driver.driver.readFile(theirs, Buffer.from("/f"), lab.signal);
    assert.equal(kept.size, 4);
  });

  test("a dot-dot that kube-apiserver authorised for one Sandbox never reaches another one", async () => {
    await lab.namespace("vault");
    await lab.sandbox("treasure", { namespace: "vault" });
    lab.driver.put(await lab.computeOf("treasure", "vault"), "/f", Buffer.from("gold"));
    const rule = { apiGroups: [GROUP], resources: ["*"], verbs: ["*"] };
    const account = await lab.serviceAccount("climber");
    await lab.grantIn(LAB, "climber", rule);
    await lab.grantIn(LAB, account.user, rule);
    const proxied = await lab.through({ user: "climber" });
    const direct = lab.direct(gateway, { token: account.token });
    const plain = { target: sessionPath("treasure", "files?path=/f", "vault") };
    assert.equal((await proxied.send(plain)).status, 403);
    assert.equal((await direct.send(plain)).status, 403);

    for (const up of ["..", "%2e%2e", "%2E%2e", ".%2e", "%252e%252e", "%25252e%25252e"]) {
      const detour = `${sessionPath("files", "files")}/${up}/${up}/${up}/${up}/vault/sandboxes/treasure/files?path=/f`;
      for (const [name, who] of Object.entries({ proxied, direct })) {
        const answer = await who.send({ target: detour });
        assert.equal(answer.status, 400, `${up} ${name}: ${answer.bytes}`);
        assert.equal(details(answer)["code"], "BadPath", `${up} ${name}: refused by the gateway, before routing`);
      }
    }
    const slash = `${sessionPath("files")}%2f..%2f..%2f..%2fvault%2fsandboxes%2ftreasure/files?path=/f`;
    for (const who of [proxied, direct]) assert.ok([400, 403].includes((await who.send({ target: slash })).status));
  });

  test("a touch moves the deadline to now plus ttl and never shortens it", async () => {
    await lab.sandbox("touched", { spec: { ttlSeconds: 3_600 } });
    const began = Date.now();
    const answer = await post(owner, "touched", "touch");
    assert.equal(answer.status, 200, answer.bytes.toString());
    const expiresAt = Date.parse(String(answer.json["expiresAt"]));
    assert.ok(expiresAt >= began + 3_600_000 && expiresAt <= Date.now() + 3_600_000);
    const shorter = await post(owner, "touched", "touch", { ttlSeconds: 1 });
    assert.equal(shorter.json["expiresAt"], answer.json["expiresAt"]);
    assert.equal((await lab.read("touched")).status.expiresAt, answer.json["expiresAt"]);
  });

  test("a stated ttl beyond the lifetime is refused and says how much is left", async () => {
    await lab.sandbox("lifetime");
    const answer = await post(owner, "lifetime", "touch", { ttlSeconds: 86_400 });
    assert.equal(answer.status, 400);
    assert.equal(details(answer)["code"], "BeyondLifetime");
    const implicit = await lab.sandbox("clamped", { spec: { ttlSeconds: 86_400, maxLifetimeSeconds: 86_400 } });
    const clamped = await post(owner, "clamped", "touch");
    assert.equal(clamped.json["expiresAt"], implicit.status.lifetimeEndsAt);
  });

  test("a touch of a running session leaves an Event that names who touched, one for many touches", async () => {
    await lab.sandbox("traced");
    for (let touches = 0; touches < 5; touches++) assert.equal((await post(owner, "traced", "touch")).status, 200);
    const events = await eventually(
      async () => {
        const page = await lab.kube
          .resource<KubeObject>(EVENTS)
          .list({ namespace: LAB, fieldSelector: "reason=Touched", signal: lab.signal });
        const ours = page.items.filter(({ metadata }) => metadata.name.startsWith("traced."));
        return ours.length > 0 ? ours : undefined;
      },
      { what: "the Event" },
    );
    assert.equal(events.length, 1);
    assert.deepEqual(JSON.parse(events[0]?.metadata.annotations?.["agentworlds.dev/caused-by"] ?? ""), {
      user: "owner",
    });
  });

  test("three hundred quick touches all succeed and lose nothing another writer wrote", async () => {
    await lab.sandbox("busy", { spec: { ttlSeconds: 3_600 }, status: { expiresAt: iso(Date.now() + MINUTE) } });
    const touches = Array.from({ length: 300 }, () => post(owner, "busy", "touch"));
    const others = Array.from({ length: 20 }, (_, count) =>
      lab.sandboxes.patchStatus(
        { namespace: LAB, name: "busy" },
        { status: { boot: count + 2 } },
        { signal: lab.signal },
      ),
    );
    const answers = await Promise.all(touches);
    await Promise.all(others);
    assert.deepEqual(new Set(answers.map((answer) => answer.status)), new Set([200]));
    const { status } = await lab.read("busy");
    const latest = Math.max(...answers.map((answer) => Date.parse(String(answer.json["expiresAt"]))));
    assert.equal(Date.parse(status.expiresAt ?? ""), latest);
    assert.ok(status.compute !== undefined && (status.boot ?? 0) >= 2);
  });

  test("work extends the deadline, reading does not, and a burst of work costs one write", async () => {
    const near = iso(Date.now() + MINUTE);
    await lab.sandbox("work", { status: { expiresAt: near, lastActivityAt: iso(Date.now()) } });
    lab.driver.put(await lab.computeOf("work"), "/f", Buffer.from("x"));
    await owner.send({ target: sessionPath("work", "files?path=/f") });
    await owner.send({ target: sessionPath("work") });
    assert.equal((await lab.read("work")).status.expiresAt, near);
    const answer = await post(owner, "work", "exec", { command: ["echo"] });
    const moved = await lab.read("work");
    assert.ok(Date.parse(moved.status.expiresAt ?? "") > Date.parse(near) + MINUTE);
    assert.equal(answer.json["expiresAt"], moved.status.expiresAt);
    await lab.sandboxes.patchStatus(
      { namespace: LAB, name: "work" },
      { status: { expiresAt: iso(Date.now() + 899_900), lastActivityAt: iso(Date.now()) } },
      { signal: lab.signal },
    );
    const before = (await lab.read("work")).metadata.resourceVersion;
    await post(owner, "work", "exec", { command: ["echo"] });
    assert.equal((await lab.read("work")).metadata.resourceVersion, before);
  });

  test("a session that is hibernated, hibernating or closed refuses work and says what to do", async () => {
    await lab.sandbox("asleep", { status: clear() });
    const operation = {
      id: "op",
      verb: "Hibernate" as const,
      reason: "DeadlineExceeded",
      stage: "Frozen" as const,
      since: iso(Date.now()),
      attempts: 1,
    };
    await lab.sandbox("dozing", { status: { operation } });
    await lab.sandbox("ended", { status: { ...clear(), closed: { version: 3, at: iso(Date.now()) } } });
    const cases: [name: string, status: number, code: string, remediation: RegExp][] = [
      ["asleep", 409, "Hibernated", /touch it/],
      ["dozing", 409, "Hibernating", /touch it/],
      ["ended", 410, "Closed", /create another/],
    ];
    for (const [name, status, code, remediation] of cases) {
      for (const answer of [
        await post(owner, name, "exec", { command: ["echo"] }),
        await owner.send({ target: sessionPath(name, "files?path=/f") }),
        await post(owner, name, "snapshot"),
      ]) {
        assert.equal(answer.status, status, name);
        assert.equal(details(answer)["code"], code);
        assert.match(String(details(answer)["remediation"]), remediation);
      }
    }
    assert.equal((await post(owner, "ended", "touch")).status, 410);
  });

  test("a touch after the intent to hibernate is recorded as a wake, once, with who asked", async () => {
    for (const name of ["asleep", "dozing"]) {
      const first = await post(owner, name, "touch");
      assert.equal(first.status, 202);
      assert.equal(first.json["waking"], true);
      const again = await Promise.all(Array.from({ length: 30 }, () => post(owner, name, "touch")));
      assert.deepEqual(new Set(again.map((answer) => answer.json["id"])), new Set([first.json["id"]]));
      const requests = (await lab.read(name)).status.requests ?? [];
      assert.deepEqual(
        requests.map(({ verb, user }) => ({ verb, user })),
        [{ verb: "Touch", user: "owner" }],
      );
    }
  });

  test("a touch under spec.mode Hibernated is refused: the owner's word outranks activity", async () => {
    await lab.sandbox("parked", { spec: { mode: "Hibernated" }, status: clear() });
    const answer = await post(owner, "parked", "touch");
    assert.equal(answer.status, 409);
    assert.match(String(details(answer)["remediation"]), /spec\.mode/);
    assert.equal((await lab.read("parked")).status.requests, undefined);
  });

  test("a snapshot waits for the controller's word, and the same id is the same snapshot", async () => {
    await lab.sandbox("snap");
    const pending = post(owner, "snap", "snapshot", { id: "mine", description: "before the upgrade" });
    await asked(lab, "snap", "mine");
    await settle(lab, "snap", "mine", { outcome: "Succeeded", version: 4, digest: DIGEST, at: iso(Date.now()) });
    const answer = await pending;
    assert.equal(answer.status, 200, answer.bytes.toString());
    assert.equal(answer.json["done"], true);
    assert.equal(answer.json["version"], 4);
    assert.equal(answer.json["digest"], DIGEST);
    const again = await post(owner, "snap", "snapshot", { id: "mine", description: "before the upgrade" });
    assert.deepEqual(again.json, answer.json);
    const requests = (await lab.read("snap")).status.requests ?? [];
    assert.equal(requests.length, 1);
    assert.equal(requests[0]?.user, "owner");
    assert.deepEqual(requests[0]?.parameters, { description: "before the upgrade" });
    for (const [verb, body] of [
      ["close", { id: "mine", description: "before the upgrade" }],
      ["snapshot", { id: "mine", description: "after the upgrade" }],
      ["snapshot", { id: "mine" }],
    ] as const) {
      const reused = await post(owner, "snap", verb, body);
      assert.deepEqual([reused.status, details(reused)["code"]], [409, "IdReused"]);
    }
  });

  test("a slow verb answers 202 before kube-apiserver would cut it, and the same id goes on waiting", async () => {
    await lab.sandbox("slow");
    const first = await post(owner, "slow", "snapshot", { id: "slow-1" });
    assert.equal(first.status, 202);
    assert.deepEqual(first.json, { id: "slow-1", done: false });
    const waiting = post(owner, "slow", "snapshot", { id: "slow-1" });
    await settle(lab, "slow", "slow-1", { outcome: "Succeeded", version: 1, digest: DIGEST, at: iso(Date.now()) });
    assert.equal((await waiting).json["done"], true);
  });

  test("what the controller refuses is a Status with its code and words", async () => {
    await lab.sandbox("refused");
    const pending = post(owner, "refused", "snapshot", { id: "no" });
    await asked(lab, "refused", "no");
    const result = {
      outcome: "Refused",
      code: "NothingToSave",
      message: "a throwaway session",
      at: iso(Date.now()),
    } as const;
    await settle(lab, "refused", "no", result);
    const answer = await pending;
    assert.equal(answer.status, 409);
    assert.equal(details(answer)["code"], "NothingToSave");
    assert.equal(details(answer)["cause"], "a throwaway session");
  });

  test("a close carries its policy, ends with its version, and can be asked for again afterwards", async () => {
    await lab.sandbox("closing");
    const pending = post(owner, "closing", "close", { policy: "Discard" });
    await eventually(async () => (await lab.read("closing")).status.requests?.[0]?.parameters?.discard === "Discard");
    const closed = { version: 7, digest: DIGEST, at: iso(Date.now()) };
    await lab.sandboxes.patchStatus(
      { namespace: LAB, name: "closing" },
      { status: { closed } },
      { signal: lab.signal },
    );
    for (const answer of [await pending, await post(owner, "closing", "close")]) {
      assert.equal(answer.status, 200);
      assert.equal(answer.json["version"], 7);
    }
  });

  test("a Sandbox replaced under its name while somebody waits is a stranger", async () => {
    await lab.sandbox("twin");
    const pending = post(owner, "twin", "snapshot", { id: "first-twin" });
    await asked(lab, "twin", "first-twin");
    await lab.sandboxes.delete({ namespace: LAB, name: "twin" }, { signal: lab.signal });
    await lab.sandbox("twin");
    assert.ok([404, 409].includes((await pending).status));
    assert.equal((await lab.read("twin")).status.requests, undefined);
  });

  test("kubectl lists the resources, grants them by their long names, and still gets Sandboxes from the CRD", async () => {
    const listed = await lab.kubectl("api-resources", "--api-group", GROUP, "--no-headers");
    assert.match(listed, /^sandboxes\s/m);
    for (const subresource of ["exec", "files", "touch", "snapshot", "close"]) {
      const role = [
        "create",
        "role",
        `grant-${subresource}`,
        "-n",
        LAB,
        "--verb=create",
        "--dry-run=server",
        "-o",
        "yaml",
      ];
      const made = await lab.kubectl(...role, `--resource=sandboxes.${GROUP}/${subresource}`);
      assert.match(made, new RegExp(`- ${GROUP}\\n[^]*- sandboxes/${subresource}`));
    }
    assert.match(
      await lab.kubectl(
        "create",
        "role",
        "w",
        "-n",
        LAB,
        "--verb=get",
        `--resource=worlds.${GROUP}/log`,
        "--dry-run=server",
        "-o",
        "yaml",
      ),
      /worlds\/log/,
    );
    const got = await lab.kubectl("get", "sandboxes", "exec", "-n", LAB, "-o", "jsonpath={.apiVersion}");
    assert.equal(got, "agentworlds.dev/v1alpha1");
    const raw = await lab.kubectl("get", "--raw", sessionPath("exec"));
    assert.equal(JSON.parse(raw).state, "Running");
  });

  test("openapi is a clean 404, unknown paths and methods are told apart, health needs no identity", async () => {
    const account = await lab.serviceAccount("looking");
    const direct = lab.direct(gateway, { token: account.token });
    for (const target of ["/openapi/v2", "/openapi/v3", "/apis/other"]) {
      const answer = await direct.send({ target });
      assert.equal(answer.status, 404);
      assert.equal(answer.json["kind"], "Status");
    }
    const method = await direct.send({ method: "GET", target: sessionPath("exec", "exec") });
    assert.equal(method.status, 405);
    assert.match(String(details(method)["remediation"]), /POST/);
    for (const target of ["/healthz", "/livez", "/readyz"]) {
      assert.equal((await lab.direct(gateway).send({ target })).status, 200);
    }
  });

  test("a download that breaks is cut off, never ended as if it were whole", async () => {
    await lab.sandbox("torn");
    lab.driver.put(await lab.computeOf("torn"), TORN, Buffer.alloc(1_000_000));
    const account = await lab.serviceAccount("downloader");
    await lab.grant(account.user, { apiGroups: [GROUP], resources: ["*"], verbs: ["*"] });
    const target = sessionPath("torn", `files?path=${TORN}`);
    for (const who of [lab.direct(gateway, { token: account.token }), owner])
      await assert.rejects(who.send({ target }));
  });

  test("an upload whose client goes away changes nothing", async () => {
    await lab.sandbox("upload");
    lab.driver.put(await lab.computeOf("upload"), "/f", Buffer.from("old"));
    const account = await lab.serviceAccount("uploader");
    await lab.grant(account.user, { apiGroups: [GROUP], resources: ["*"], verbs: ["*"] });
    const container = await lab.computeOf("upload");
    const sent = lab.direct(gateway, { token: account.token }).sendHalf({
      method: "PUT",
      target: sessionPath("upload", "files?path=/f"),
      body: Buffer.alloc(200_000),
    });
    await eventually(() => lab.driver.uploads.get(container) === "receiving");
    sent.destroy();
    await eventually(() => lab.driver.uploads.get(container) === "broken", {
      what: "the driver seeing the upload break",
    });
    const got = await owner.send({ target: sessionPath("upload", "files?path=/f") });
    assert.equal(got.bytes.toString(), "old");
  });

  test("a session does not expire under a command that runs longer than its ttl", async () => {
    const deadline = Date.now() + 3_000;
    await lab.sandbox("vigil", { spec: { ttlSeconds: 3 }, status: { expiresAt: iso(deadline) } });
    const command = post(owner, "vigil", "exec", { command: ["wait", "4500"] });
    let ended = false;
    void command.finally(() => {
      ended = true;
    });
    const seen = new Set<string>();
    await eventually(async () => {
      const { expiresAt = "" } = (await lab.read("vigil")).status;
      assert.ok(Date.parse(expiresAt) > Date.now(), "expired under the command");
      seen.add(expiresAt);
      return ended;
    });
    assert.equal((await command).status, 200);
    assert.ok(seen.size >= 4, `moved ${seen.size} times`);
  });

  test("a command under way when the gateway stops is answered, and a wait ends with 202", async () => {
    await lab.sandbox("drained");
    const leaving = await lab.gateway("gateway-leaving", { limits: { longPollMs: 45_000 } }, { aggregated: false });
    const account = await lab.serviceAccount("drainer");
    await lab.grant(account.user, { apiGroups: [GROUP], resources: ["*"], verbs: ["*"] });
    const direct = lab.direct(leaving, { token: account.token });
    const snapshot = post(direct, "drained", "snapshot", { id: "drained" });
    await asked(lab, "drained", "drained");
    const container = await lab.computeOf("drained");
    const command = post(direct, "drained", "exec", { command: ["wait", "700"] });
    await eventually(() => lab.driver.execs.at(-1)?.id === container);
    await leaving.stop();
    assert.equal((await command).status, 200);
    assert.equal((await snapshot).status, 202);
    await assert.rejects(lab.direct(leaving).send({ target: "/healthz" }), { code: "ECONNREFUSED" });
  });

  test("an exec body above the limit is a 413, not a buffer without end", async () => {
    const account = await lab.serviceAccount("big");
    await lab.grant(account.user, { apiGroups: [GROUP], resources: ["*"], verbs: ["*"] });
    const direct = lab.direct(gateway, { token: account.token });
    const answer = await post(direct, "exec", "exec", Buffer.alloc(21 * 1024 * 1024, 0x20));
    assert.equal(answer.status, 413);
    assert.equal(details(answer)["code"], "BodyTooLarge");
  });

  test("a command and environment above 4 MiB are a 413, and neither session nor host hears of them", async () => {
    await lab.sandbox("wordy");
    const execs = lab.driver.execs.length;
    const before = (await lab.read("wordy")).metadata.resourceVersion;
    const env = Object.fromEntries(Array.from({ length: 40 }, (_, at) => [`A${at}`, "x".repeat(120_000)]));
    const answer = await post(owner, "wordy", "exec", { command: ["echo"], env });
    assert.equal(answer.status, 413);
    assert.equal(details(answer)["code"], "CommandTooLarge");
    assert.equal((await lab.read("wordy")).metadata.resourceVersion, before);
    assert.equal(lab.driver.execs.length, execs);
  });

  test("one identity may have a bounded number of requests under way, and others are not held up", async () => {
    const narrow = await lab.gateway("gateway-narrow", { requestsPerIdentity: 1, port: 0 });
    const account = await lab.serviceAccount("greedy");
    await lab.grant(account.user, { apiGroups: [GROUP], resources: ["*"], verbs: ["*"] });
    const direct = lab.direct(narrow, { token: account.token });
    const before = lab.driver.execs.length;
    const first = direct.send({
      method: "POST",
      target: sessionPath("exec", "exec"),
      body: { command: ["wait", "2000"] },
    });
    await eventually(() => lab.driver.execs.length > before, { what: "the first command being run" });
    const second = await direct.send({ target: sessionPath("exec") });
    assert.equal(second.status, 429);
    assert.equal(second.headers["retry-after"], "1");
    assert.equal((await first).status, 200);
    assert.equal((await direct.send({ target: sessionPath("exec") })).status, 200);
    await narrow.stop();
  });

  test("the serving certificate is kept in a Secret that every replica shares", async () => {
    const secret = await lab.kubectl(
      "get",
      "secret",
      "agent-worlds-gateway-tls",
      "-n",
      SYSTEM,
      "-o",
      "jsonpath={.data.ca\\.crt}",
    );
    assert.equal(text(secret), gateway.caBundle);
  });
});

const DIGEST = `sha256:${"ab".repeat(32)}` as const;

/** Nothing runs: what hibernation leaves of the running status. */
function clear(): Record<string, null> {
  return { compute: null, expiresAt: null, lifetimeEndsAt: null };
}

async function asked(lab: Lab, name: string, id: string): Promise<void> {
  await eventually(async () => (await lab.read(name)).status.requests?.some((request) => request.id === id));
}

/** Answers a request as the leading controller does. */
async function settle(lab: Lab, name: string, id: string, result: SandboxRequestResult): Promise<void> {
  const requests = ((await lab.read(name)).status.requests ?? []).map((each) =>
    each.id === id ? { ...each, result } : each,
  );
  await lab.sandboxes.patchStatus({ namespace: LAB, name }, { status: { requests } }, { signal: lab.signal });
}

async function clientPairOf(kubeconfigPath: string): Promise<{ cert: string; key: string }> {
  const { user } = parse(await readFile(kubeconfigPath, "utf8")).users[0];
  const decode = (field: string): string => Buffer.from(String(user[field]), "base64").toString();
  return { cert: decode("client-certificate-data"), key: decode("client-key-data") };
}
