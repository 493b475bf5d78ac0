/** The catalog of real registries: what begins with a prefix is found in a few pages, whatever else there is. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { imageIn, newSeed, REGISTRIES, serve } from "./support.ts";

const PREFIX = "worlds/install/team/lab-";
const OURS = [`${PREFIX}00000000`, `${PREFIX}0a1b2c3d`, `${PREFIX}ffffffff`];
/** Around them in any order a registry may keep: shorter, longer, deeper, before and after. */
const OTHERS = [
  "alone",
  "worlds/install/another/lab-0a1b2c3d",
  "worlds/install/team/lab",
  "worlds/install/team/lab/deeper",
  "worlds/install/team/la-0a1b2c3d",
  "worlds/install/team/lac-0a1b2c3d",
  "worlds/install/team/labs-0a1b2c3d",
  "worlds/install/team-two/lab-0a1b2c3d",
  "zoo/lab-0a1b2c3d",
];

for (const { name, wish } of REGISTRIES) {
  test(`${name}: every repository with the prefix is listed, page by page, and no other`, async () => {
    const signal = AbortSignal.timeout(120_000);
    const seed = newSeed();
    await using served = await serve(wish, { repositoriesPerPage: 2 });
    const { client } = served;
    assert.deepEqual(await client.listRepositories(PREFIX, signal), [], "an empty registry has none");
    for (const repository of [...OTHERS, ...OURS]) {
      const { mediaType, bytes } = await imageIn(client, repository, { seed, signal });
      await client.putManifest(repository, { reference: "v0", mediaType, bytes }, signal);
    }
    const listed = await client.listRepositories(PREFIX, signal);
    assert.notEqual(listed, "NoCatalog");
    assert.deepEqual([...listed].sort(), OURS, `seed ${seed}`);
  });
}
