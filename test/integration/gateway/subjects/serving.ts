/** What a gateway serves beside the verbs, its limits, and its end. */
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { GROUP } from "../../../../operator/src/gateway/discovery.ts";
import type { Gateway } from "../../../../operator/src/gateway/server.ts";
import { eventually } from "../../../kit/index.ts";
import { LAB, type Lab, SYSTEM, sessionPath } from "../fixture.ts";
import type { Caller, RawAnswer } from "../raw-request.ts";
import { asked, details, post, type Stand } from "./stand.ts";

const utf8 = (value: unknown): string => Buffer.from(String(value), "base64").toString();

export function serving(stand: () => Stand): void {
  describe("serving", () => {
    let lab: Lab;
    let gateway: Gateway;
    let owner: Caller;
    before(async () => {
      ({ lab, gateway, owner } = stand());
      await lab.sandbox("served");
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
      const got = await lab.kubectl("get", "sandboxes", "served", "-n", LAB, "-o", "jsonpath={.apiVersion}");
      assert.equal(got, "agentworlds.dev/v1alpha1");
      const raw = await lab.kubectl("get", "--raw", sessionPath("served"));
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
      const method = await direct.send({ method: "GET", target: sessionPath("served", "exec") });
      assert.equal(method.status, 405);
      assert.match(String(details(method)["remediation"]), /POST/);
      for (const target of ["/healthz", "/livez", "/readyz"]) {
        assert.equal((await lab.direct(gateway).send({ target })).status, 200);
      }
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
      const answer = await post(direct, "served", "exec", Buffer.alloc(21 * 1024 * 1024, 0x20));
      assert.equal(answer.status, 413);
      assert.equal(details(answer)["code"], "BodyTooLarge");
    });

    test("one identity may have a bounded number of requests under way, and others are not held up", async () => {
      const narrow = await lab.gateway("gateway-narrow", { requestsPerIdentity: 1, port: 0 });
      const account = await lab.serviceAccount("greedy");
      await lab.grant(account.user, { apiGroups: [GROUP], resources: ["*"], verbs: ["*"] });
      const direct = lab.direct(narrow, { token: account.token });
      const before = lab.driver.execs.length;
      const first = direct.send({
        method: "POST",
        target: sessionPath("served", "exec"),
        body: { command: ["wait", "2000"] },
      });
      await eventually(() => lab.driver.execs.length > before, { what: "the first command being run" });
      const second = await direct.send({ target: sessionPath("served") });
      assert.equal(second.status, 429);
      assert.equal(second.headers["retry-after"], "1");
      assert.equal((await first).status, 200);
      assert.equal((await direct.send({ target: sessionPath("served") })).status, 200);
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
      assert.equal(utf8(secret), gateway.caBundle);
    });
  });
}
