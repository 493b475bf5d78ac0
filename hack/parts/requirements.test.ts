import assert from "node:assert/strict";
import { test } from "node:test";
import { type Machine, missingOn, type Undertaking } from "./requirements.ts";
import * as undertakings from "./undertakings.ts";

/** A Debian machine where everything is there and compiled. */
const ready: Machine = {
  platform: "linux",
  isRoot: true,
  hasApt: true,
  installed: new Set([
    "setpriv",
    "flock",
    "tar",
    "kubectl",
    "dockerd",
    "iptables",
    "ip",
    "busybox",
    "debootstrap",
    "perl",
  ]),
  go: "Fine",
  uncompiled: [],
  workbench: "Made",
  engine: "Answers",
  dockerHost: "unix:///var/run/docker.sock",
};
const only = (...programs: string[]) => ({ installed: new Set(["setpriv", "flock", "tar", ...programs]) });
const demo = undertakings.demo("Own", "workbench");
const up = undertakings.up(["busybox"], 5055);
const user = { isRoot: false };

const cases: [promise: string, wanted: Undertaking, machine: Partial<Machine>, sentences: RegExp[]][] = [
  ["a machine that has everything", demo, {}, []],
  [
    "root on Debian: what can be installed is not missing",
    demo,
    { ...only("kubectl"), engine: "None", workbench: "ToBeMade" },
    [],
  ],
  ["no kubectl", demo, only(), [/^kubectl is not installed .* install kubectl 1\.31 or newer/]],
  ["kubectl is not missed by who does not use it", up, only(), []],
  ["no Go and a warm cache", demo, { go: "Missing" }, []],
  [
    "no Go and a cold cache",
    demo,
    { go: "Missing", uncompiled: ["etcd", "the helper"] },
    [/^Go is not installed and is needed for compiling etcd, the helper: install Go 1\.26 or newer/],
  ],
  ["an old Go and a cold cache", demo, { go: "TooOld", uncompiled: ["etcd"] }, [/^Go is too old for compiling etcd: /]],
  [
    "no Go and the helper's own tests",
    undertakings.test,
    { go: "Missing" },
    [/needed for the helper's own tests: install Go/],
  ],
  [
    "DOCKER_HOST that is silent",
    demo,
    { engine: "Silent", dockerHost: "tcp://h:1" },
    [/^nothing answers at DOCKER_HOST=tcp:\/\/h:1: start/],
  ],
  [
    "a user without an engine",
    up,
    { ...user, engine: "None" },
    [
      /^no container engine answers at .*only root can start a private one: start one and set DOCKER_HOST, or run as root$/,
    ],
  ],
  [
    "a user outside the group docker",
    up,
    { ...user, engine: "Forbidden" },
    [/^unix:\/\/\/var\/run\/docker\.sock may not be used by this user, .* join the group docker/],
  ],
  ["a user with an engine and a warm cache needs no root", demo, user, []],
  [
    "a user without the workbench",
    demo,
    { ...user, workbench: "ToBeMade" },
    [/^the workbench base image is not in the cache, and only root can make it/],
  ],
  [
    "a user without busybox",
    up,
    { ...user, ...only() },
    [/^busybox is not installed and is needed for the busybox base image: install the Debian package busybox-static$/],
  ],
  [
    "a user without Debian's registry",
    undertakings.test,
    user,
    [/^docker-registry is not installed .* Debian package docker-registry$/],
  ],
  [
    "root without apt",
    up,
    { hasApt: false, engine: "None", ...only("busybox", "ip") },
    [/^dockerd .* package docker\.io$/, /^iptables .* package iptables$/],
  ],
  [
    "what TMPDIR, KUBECONFIG and DOCKER_HOST name is told together",
    demo,
    { temporaryTrouble: "TMPDIR=/nope", clusterTrouble: "KUBECONFIG=/nope", engine: "Silent", dockerHost: "tcp://h:1" },
    [/^TMPDIR=\/nope$/, /^KUBECONFIG=\/nope$/, /^nothing answers at DOCKER_HOST=tcp:\/\/h:1: /],
  ],
  ["a DOCKER_HOST that is none", demo, { engine: "Silent", addressTrouble: "DOCKER_HOST=x" }, [/^DOCKER_HOST=x$/]],
  ["a folder where no engine can be", demo, { engine: "None", engineFolderTrouble: "/a b" }, [/^\/a b$/]],
  ["an engine that answers needs no folder", demo, { engineFolderTrouble: "/a b" }, []],
  ["a port that is held", up, { portTrouble: "port 5055 of 127.0.0.1 is taken by X: end X" }, [/^port 5055 .* end X$/]],
  [
    "a home that cannot be written",
    up,
    { cacheTrouble: "/x cannot be written (EACCES): set HOME" },
    [/^\/x cannot be written/],
  ],
  [
    "another system",
    up,
    { platform: "darwin", go: "Missing" },
    [/^the local parts run on Linux only, and this is darwin$/],
  ],
  [
    "everything at once, in one go",
    demo,
    { ...user, ...only(), go: "Missing", uncompiled: ["etcd"], engine: "None", workbench: "ToBeMade" },
    [/^kubectl/, /^Go/, /^no container engine/, /^the workbench/],
  ],
];
for (const [promise, wanted, machine, sentences] of cases) {
  test(promise, () => {
    const said = missingOn({ ...ready, ...machine }, wanted);
    assert.equal(said.length, sentences.length, said.join("\n"));
    for (const [index, sentence] of sentences.entries()) assert.match(said[index] ?? "", sentence);
  });
}
