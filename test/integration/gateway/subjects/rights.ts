/** Who may do what, by kube-apiserver and by the gateway itself. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { before, describe, test } from "node:test";
import { parse } from "yaml";
import { GROUP } from "../../../../operator/src/gateway/discovery.ts";
import type { Gateway } from "../../../../operator/src/gateway/server.ts";
import { LAB, type Lab, sessionPath } from "../fixture.ts";
import type { Caller, RawAnswer } from "../raw-request.ts";
import { details, post, type Stand } from "./stand.ts";

export function rights(stand: () => Stand): void {
  describe("rights", () => {
    let lab: Lab;
    let gateway: Gateway;
    let owner: Caller;
    let reader: Caller;
    let stranger: Caller;
    before(() => {
      ({ lab, gateway, owner, reader, stranger } = stand());
    });

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
  });
}

async function clientPairOf(kubeconfigPath: string): Promise<{ cert: string; key: string }> {
  const { user } = parse(await readFile(kubeconfigPath, "utf8")).users[0];
  const decode = (field: string): string => Buffer.from(String(user[field]), "base64").toString();
  return { cert: decode("client-certificate-data"), key: decode("client-key-data") };
}
