import assert from "node:assert/strict";
import { test } from "node:test";
import { mountPoints } from "./engine-cleanup.ts";
import { type EngineNetwork, hasDockerBridge, ownedLinks, ownedRules, ownsAddress } from "./engine-network.ts";

const ours: EngineNetwork = {
  bridge: "awe-1",
  bridgeAddress: "10.99.32.1/24",
  pool: "10.99.40.0/21",
  second: 99,
  low: 32,
};

const addresses: [address: string, want: boolean][] = [
  ["10.99.32.1", true],
  ["10.99.47.255/26", true],
  ["10.99.48.0", false],
  ["10.99.31.9", false],
  ["10.98.32.1", false],
  ["110.99.32.1", false],
  ["awe-1", false],
];
for (const [address, want] of addresses) {
  test(`${address} is ${want ? "ours" : "not ours"}`, () => assert.equal(ownsAddress(ours, address), want));
}

test("links of ours are those with an address of ours", () => {
  const listed = [
    "1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever",
    "7: br-abc    inet 10.99.40.1/26 brd 10.99.40.63 scope global br-abc\\       valid_lft forever",
    "8: docker0    inet 172.17.0.1/16 scope global docker0\\       valid_lft forever",
  ].join("\n");
  assert.deepEqual(ownedLinks(ours, listed), ["br-abc"]);
});

const saved = `*filter
:FORWARD DROP [0:0]
:DOCKER - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -o docker0 -j DOCKER
-A FORWARD -o awe-1 -j DOCKER
-A DOCKER -d 10.99.40.2/32 ! -i br-x -o br-x -p tcp -m tcp --dport 80 -j ACCEPT
COMMIT
*nat
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
-A POSTROUTING -s 10.99.32.0/24 ! -o awe-1 -j MASQUERADE
-A DOCKER -p tcp -m tcp --dport 1 -j DNAT --to-destination 10.99.40.2:80
COMMIT
`;

test("rules of ours name a link or an address of ours; nobody else's rule is touched", () => {
  assert.deepEqual(
    ownedRules(ours, ["awe-1"], saved).map(({ table, args }) => `${table}: ${args.join(" ")}`),
    [
      "filter: FORWARD -o awe-1 -j DOCKER",
      "filter: DOCKER -d 10.99.40.2/32 ! -i br-x -o br-x -p tcp -m tcp --dport 80 -j ACCEPT",
      "nat: POSTROUTING -s 10.99.32.0/24 ! -o awe-1 -j MASQUERADE",
      "nat: DOCKER -p tcp -m tcp --dport 1 -j DNAT --to-destination 10.99.40.2:80",
    ],
  );
});

test("another daemon's bridge is seen, so that what all daemons share stays", () => {
  assert.equal(hasDockerBridge(saved), true);
  assert.equal(hasDockerBridge("*filter\n-A FORWARD -j DOCKER-USER\nCOMMIT\n"), false);
});

test("mount points with blanks are read as they are", () => {
  assert.deepEqual(mountPoints("36 35 98:0 / /a\\040b rw - ext4 /dev/x rw\n37 36 0:1 / /a\\040b/c rw - proc p rw\n"), [
    "/a b",
    "/a b/c",
  ]);
});
