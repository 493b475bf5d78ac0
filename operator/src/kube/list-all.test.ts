import assert from "node:assert/strict";
import { test } from "node:test";
import type { World } from "@agentworlds/crds";
import { memoryResource } from "../runtime/memory-resource.test-kit.ts";
import { worldOf } from "../runtime/test-objects.test-kit.ts";
import type { ResourceClient } from "./contract.ts";
import { listAll } from "./list-all.ts";
import { WORLDS } from "./resource-types.ts";

test("all pages are read, each where the one before ended", async () => {
  const pages = [["a", "b"], ["c"], []].map((names) => names.map((name) => worldOf({ metadata: { name } })));
  const asked: (string | undefined)[] = [];
  const client: ResourceClient<World> = {
    ...memoryResource<World>(WORLDS),
    list: async ({ continueToken, namespace, limit }) => {
      assert.deepEqual([namespace, limit], ["team", 500]);
      asked.push(continueToken);
      const page = Number(continueToken ?? 0);
      // The API server ends with an absent token, other servers with an empty one.
      const next = page + 1 < pages.length ? String(page + 1) : "";
      return { items: pages[page] ?? [], resourceVersion: "1", continueToken: next };
    },
  };
  const found = await listAll(client, { namespace: "team", signal: new AbortController().signal });
  assert.deepEqual(
    found.map(({ metadata }) => metadata.name),
    ["a", "b", "c"],
  );
  assert.deepEqual(asked, [undefined, "1", "2"]);
});
