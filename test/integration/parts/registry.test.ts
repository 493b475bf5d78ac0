import assert from "node:assert/strict";
import { dirname } from "node:path";
import { test } from "node:test";
import { send } from "../../../hack/parts/http.ts";
import { baseImage, engine, type Registry, registry } from "../../kit/index.ts";
import { leftoversOf, nothing } from "./leftovers.ts";

const manifestType = "application/vnd.docker.distribution.manifest.v2+json";

function call(one: Registry, path: string, options: { method?: string; password?: string } = {}) {
  const password = options.password ?? one.password;
  const login = one.username === undefined ? {} : { authorization: `Basic ${btoa(`${one.username}:${password}`)}` };
  return send({
    url: `${one.url}${path}`,
    method: options.method ?? "GET",
    headers: { accept: manifestType, ...login },
    ...(one.caPem === undefined ? {} : { ca: one.caPem }),
    signal: AbortSignal.timeout(20_000),
  });
}

const kinds = [
  { version: "v3", auth: "none", tls: false },
  { version: "v2", auth: "none", tls: false },
  { version: "v3", auth: "basic", tls: true },
  { version: "v2", auth: "basic", tls: true },
] as const;

for (const kind of kinds) {
  const name = `${kind.version}${kind.tls ? " with TLS" : ""}${kind.auth === "basic" ? " and a login" : ""}`;

  test(`${name}: takes an image, keeps it over a restart, deletes it by digest, leaves nothing`, async () => {
    const own = await registry({ own: true, ...kind });
    {
      await using used = await engine();
      await using image = await baseImage("busybox", { engine: used, registry: own });
      assert.equal(image.reference, `${own.host}/base/busybox:latest`);
    }
    await own.stop();
    await assert.rejects(call(own, "/v2/"), { code: "ECONNREFUSED" });
    await own.start();
    const found = await call(own, "/v2/base/busybox/manifests/latest");
    assert.equal(found.status, 200);
    const digest = String(found.headers["docker-content-digest"]);
    assert.equal((await call(own, `/v2/base/busybox/manifests/${digest}`, { method: "DELETE" })).status, 202);
    assert.equal((await call(own, "/v2/base/busybox/manifests/latest")).status, 404);
    if (kind.auth === "basic") {
      const refused = await call(own, "/v2/", { password: "wrong" });
      assert.equal(refused.status, 401);
      assert.match(String(refused.headers["www-authenticate"]), /^Basic realm=/);
    }
    await own[Symbol.asyncDispose]();
    assert.deepEqual(await leftoversOf(dirname(own.dataDirectory)), nothing);
  });
}

test("a port that is taken is named", async () => {
  await using first = await registry({ own: true });
  const port = Number(new URL(first.url).port);
  await assert.rejects(registry({ own: true, port }), new RegExp(`port ${port} of 127.0.0.1 is taken`));
});
