import assert from "node:assert/strict";
import { test } from "node:test";
import { isRegistryError } from "./errors.ts";
import { formatReference, parseReference, registryUrl } from "./reference.ts";

const D = `sha256:${"a".repeat(64)}`;

const valid: [text: string, inFull: string][] = [
  ["busybox", "docker.io/library/busybox:latest"],
  ["busybox:1.36", "docker.io/library/busybox:1.36"],
  [`busybox@${D}`, `docker.io/library/busybox@${D}`],
  [`busybox:1.36@${D}`, `docker.io/library/busybox:1.36@${D}`],
  ["someone/tool", "docker.io/someone/tool:latest"],
  ["docker.io/busybox", "docker.io/library/busybox:latest"],
  ["index.docker.io/someone/tool:v1", "docker.io/someone/tool:v1"],
  ["registry-1.docker.io/library/busybox", "docker.io/library/busybox:latest"],
  ["localhost/tool", "localhost/tool:latest"],
  ["localhost:5000/tool:v1", "localhost:5000/tool:v1"],
  ["127.0.0.1:5055/base/busybox:latest", "127.0.0.1:5055/base/busybox:latest"],
  ["[::1]:5000/tool", "[::1]:5000/tool:latest"],
  ["ghcr.io/a/b/c:v1", "ghcr.io/a/b/c:v1"],
  ["GHCR.io/a/b", "ghcr.io/a/b:latest"],
  ["host:443/x", "host:443/x:latest"],
  ["a__b/c-d.e/f--g:V.1_x", "docker.io/a__b/c-d.e/f--g:V.1_x"],
];
for (const [text, inFull] of valid) {
  test(`reference: ${text} is ${inFull}`, () => {
    const parsed = parseReference(text);
    assert.equal(formatReference(parsed), inFull);
    assert.deepEqual(parseReference(inFull), parsed);
  });
}

const invalid = [
  "",
  ":tag",
  "UPPER",
  "a/../b",
  "a//b",
  "/a",
  "a/",
  "host:port/x",
  "bad_host.example/x",
  "x:tag:tag",
  `x:${"t".repeat(129)}`,
  "x@sha256:short",
  `x@sha512:${"a".repeat(128)}`,
  `x@${D}@${D}`,
  "https://docker.io/x",
  "x y",
  "x\n",
  `docker.io/${"a".repeat(256)}`,
];
for (const text of invalid) {
  test(`reference: ${JSON.stringify(text).slice(0, 40)} is refused`, () => {
    assert.throws(
      () => parseReference(text),
      (error) => isRegistryError(error, "Refused"),
    );
  });
}

const urls: [registry: string, url: string][] = [
  ["docker.io", "https://registry-1.docker.io"],
  ["ghcr.io", "https://ghcr.io"],
  ["registry.example:8443", "https://registry.example:8443"],
  ["localhost:5000", "http://localhost:5000"],
  ["127.0.0.1:5055", "http://127.0.0.1:5055"],
  ["127.0.0.1.example.com", "https://127.0.0.1.example.com"],
];
for (const [registry, url] of urls)
  test(`${registry} answers at ${url}`, () => assert.equal(registryUrl(registry), url));
