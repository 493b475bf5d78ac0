/** Files, their paths, and transfers that break. */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { before, describe, test } from "node:test";
import { GROUP } from "../../../../operator/src/gateway/discovery.ts";
import type { Gateway } from "../../../../operator/src/gateway/server.ts";
import { eventually } from "../../../kit/index.ts";
import { type Lab, sessionPath } from "../fixture.ts";
import { TORN } from "../memory-driver.ts";
import type { Caller } from "../raw-request.ts";
import type { Stand } from "./stand.ts";

export function files(stand: () => Stand): void {
  describe("files", () => {
    let lab: Lab;
    let gateway: Gateway;
    let owner: Caller;
    before(() => {
      ({ lab, gateway, owner } = stand());
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
  });
}
