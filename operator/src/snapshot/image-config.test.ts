import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { PublicationError } from "./errors.ts";
import { configOfVersion, digestOf, parseImageConfig, withoutVolumes } from "./image-config.ts";

type Json = Record<string, unknown>;

const bytesOf = (value: unknown): Uint8Array => new TextEncoder().encode(JSON.stringify(value));
const read = (bytes: Uint8Array): Json => JSON.parse(new TextDecoder().decode(bytes));
const layer = (name: string | number): string => digestOf(new TextEncoder().encode(`layer ${name}`));

const NOW = "2026-01-01T00:00:00.000Z";
/** A genesis image as a Dockerfile makes it: three entries of history, two layers. */
const genesis = {
  architecture: "amd64",
  os: "linux",
  variant: "v2",
  author: "acme",
  created: "2020-01-01T00:00:00Z",
  config: {
    Entrypoint: ["/bin/entry"],
    Cmd: ["serve"],
    Env: ["PATH=/bin"],
    Labels: { "acme.dev/team": "tools" },
    WorkingDir: "/srv",
  },
  history: [
    { created: "2019-01-01T00:00:00Z", created_by: "ADD rootfs" },
    { created: "2019-01-01T00:00:00Z", created_by: "ENV PATH=/bin", empty_layer: true },
    { created: "2020-01-01T00:00:00Z", created_by: "RUN make", comment: "x" },
  ],
  rootfs: { type: "layers", diff_ids: [layer(1), layer(2)] },
};
const version = (base: Json, diffIds: readonly string[], createdAt = NOW) =>
  configOfVersion({ baseConfig: bytesOf(base), diffIds, createdAt });

test("a version runs as its genesis image does: entrypoint, command, environment, labels, platform stay", () => {
  const { config, architecture, os, variant, author } = read(version(genesis, [layer(1), layer(2), layer(3)]));
  assert.deepEqual(
    { config, architecture, os, variant, author },
    {
      config: genesis.config,
      architecture: "amd64",
      os: "linux",
      variant: "v2",
      author: "acme",
    },
  );
});

test("a version has its own layers and time, and one entry of history for each layer it adds", () => {
  const made = read(version(genesis, [layer(1), layer(2), layer(3), layer(4)]));
  assert.deepEqual(made["rootfs"], { type: "layers", diff_ids: [layer(1), layer(2), layer(3), layer(4)] });
  assert.equal(made["created"], NOW);
  const own = { created: NOW, created_by: "agent-worlds snapshot" };
  assert.deepEqual(made["history"], [...genesis.history, own, own]);
});

test("a version without a change has the layers of its base", () => {
  assert.deepEqual(read(version(genesis, [layer(1), layer(2)]))["history"], genesis.history);
});

test("the build container's leftovers, its environment among them, are in no version", () => {
  const leftovers = {
    container: "f00",
    container_config: { Env: ["TOKEN=secret"], Cmd: ["/.agentworlds/helper"] },
    docker_version: "27.0",
    id: "1",
    parent: "2",
    throwaway: true,
  };
  const made = version({ ...genesis, ...leftovers }, [layer(1), layer(2), layer(3)]);
  assert.doesNotMatch(new TextDecoder().decode(made), /secret|agentworlds|throwaway|docker_version/);
});

for (const [name, history] of [
  ["no history", undefined],
  ["a history of null", null],
  ["an empty history", []],
  ["a history of too few entries", genesis.history.slice(0, 1)],
  ["a history of too many entries", [...genesis.history, { created_by: "RUN more" }]],
  ["a history that calls every layer empty", genesis.history.map((entry) => ({ ...entry, empty_layer: true }))],
] as const) {
  test(`a genesis with ${name} gets a plain one, because an engine refuses a history that does not match its layers`, () => {
    const { history: _, ...rest } = genesis;
    const made = read(
      version({ ...rest, ...(history === undefined ? {} : { history }) }, [layer(1), layer(2), layer(3)]),
    );
    assert.deepEqual(
      (made["history"] as { created_by: string }[]).map((entry) => entry.created_by),
      ["agent-worlds genesis", "agent-worlds genesis", "agent-worlds snapshot"],
    );
  });
}

const refused: [name: string, diffIds: string[]][] = [
  ["fewer layers than its base", [layer(1)]],
  ["another first layer", [layer(9), layer(2), layer(3)]],
  ["its base's layers in another order", [layer(2), layer(1), layer(3)]],
  ["no layers", []],
];
for (const [name, diffIds] of refused) {
  test(`a capture with ${name} does not derive from the version it booted from, and is refused`, () => {
    assert.throws(() => version(genesis, diffIds), { name: "PublicationError", code: "CaptureMalformed" });
  });
}

const malformed: [name: string, bytes: Uint8Array][] = [
  ["no JSON", new TextEncoder().encode("<html>")],
  ["cut JSON", bytesOf(genesis).slice(0, 40)],
  ["null", bytesOf(null)],
  ["no platform", bytesOf({ rootfs: genesis.rootfs })],
  ["no layers at all", bytesOf({ architecture: "amd64", os: "linux" })],
  ["layers of another kind", bytesOf({ ...genesis, rootfs: { type: "chunks", diff_ids: [] } })],
];
for (const [name, bytes] of malformed) {
  test(`a config that is ${name} is refused by name`, () => {
    assert.throws(
      () => parseImageConfig(bytes),
      (error) => error instanceof PublicationError && error.code === "CaptureMalformed",
    );
  });
}

test("an image without layers, as FROM scratch makes it, is a base like any other", () => {
  const scratch = { architecture: "amd64", os: "linux", rootfs: { type: "layers", diff_ids: null } };
  assert.deepEqual(read(version(scratch, [layer(1)]))["rootfs"], { type: "layers", diff_ids: [layer(1)] });
});

const historyEntry = fc.record(
  { created_by: fc.string({ maxLength: 10 }), empty_layer: fc.boolean() },
  { requiredKeys: ["created_by"], noNullPrototype: true },
);
const lives = fc.record({
  history: fc.option(fc.array(historyEntry, { maxLength: 6 }), { nil: null }),
  layers: fc.nat(4),
  snapshots: fc.array(fc.nat(2), { maxLength: 6 }),
});

test("through any life of snapshots: history matches the layers, the genesis settings stay, and a retry makes the same bytes", () => {
  fc.assert(
    fc.property(lives, ({ history, layers, snapshots }) => {
      let diffIds = Array.from({ length: layers }, (_, index) => layer(`genesis ${index}`));
      let config = bytesOf({ ...genesis, history, rootfs: { type: "layers", diff_ids: diffIds } });
      for (const [round, added] of snapshots.entries()) {
        const input = {
          baseConfig: config,
          diffIds: [...diffIds, ...Array.from({ length: added }, (_, index) => layer(`${round} ${index}`))],
          createdAt: `2026-01-0${round + 1}T00:00:00.000Z`,
        };
        config = configOfVersion(input);
        assert.deepEqual(configOfVersion(input), config);
        diffIds = [...input.diffIds];
        const made = parseImageConfig(config);
        assert.deepEqual(made.rootfs.diff_ids, diffIds);
        assert.equal((made.history ?? []).filter((entry) => entry.empty_layer !== true).length, diffIds.length);
        assert.deepEqual(made["config"], genesis.config);
      }
    }),
  );
});

test("VOLUME declarations leave the config, since what is written into a volume is in no version", () => {
  const bytes = new TextEncoder().encode(
    JSON.stringify({
      architecture: "amd64",
      os: "linux",
      config: { Env: ["A=b"], Volumes: { "/data": {} } },
      rootfs: { type: "layers", diff_ids: [] },
    }),
  );
  const { config } = JSON.parse(new TextDecoder().decode(withoutVolumes(bytes)));
  assert.deepEqual(config, { Env: ["A=b"] });
});

test("a config without volumes keeps its bytes, so that its digest is the source's", () => {
  for (const config of [undefined, {}, { Volumes: null }, { Volumes: {} }]) {
    const bytes = new TextEncoder().encode(
      JSON.stringify({ architecture: "amd64", os: "linux", config, rootfs: { type: "layers", diff_ids: [] } }),
    );
    assert.equal(withoutVolumes(bytes), bytes);
  }
});
