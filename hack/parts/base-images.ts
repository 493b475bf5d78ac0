import { createReadStream } from "node:fs";
import { chmod, copyFile, mkdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { partDirectory } from "./directory.ts";
import { callEngine, expectProgress, expectSuccess } from "./engine-api.ts";
import { PartFailed } from "./errors.ts";
import { ensureProgram, type PackagedProgram } from "./packages.ts";
import { run } from "./process.ts";
import type { RegistryAddress } from "./registry.ts";
import { DEBOOTSTRAP, workbenchTar } from "./workbench.ts";

/** An image that the local parts build themselves, since none can be counted on to be pulled. */
export type BaseImageName = "busybox" | "workbench";

/** Where a base image goes. */
export interface BaseImageTarget {
  /** Engine that imports and pushes. */
  dockerHost: string;
  registry: RegistryAddress;
  signal: AbortSignal;
}

const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

const configuration: Readonly<Record<BaseImageName, readonly string[]>> = {
  busybox: [`ENV PATH=${searchPath}`, 'CMD ["sh"]', "WORKDIR /"],
  workbench: [`ENV PATH=${searchPath}`, "ENV LANG=C.UTF-8", 'CMD ["bash"]', "WORKDIR /root"],
};

const BUSYBOX: PackagedProgram = {
  program: "busybox",
  package: "busybox-static",
  purpose: "the busybox base image",
};

/** What makes a base image. */
export const imageProgram = (name: BaseImageName): PackagedProgram => (name === "busybox" ? BUSYBOX : DEBOOTSTRAP);

/** Whether there is a base image of that name. */
export function isBaseImageName(name: string): name is BaseImageName {
  return Object.hasOwn(configuration, name);
}

/** `HOST/base/NAME:latest` */
export function baseImageReference(name: BaseImageName, registry: Pick<RegistryAddress, "host">): string {
  return `${registry.host}/base/${name}:latest`;
}

/**
 * Builds a base image, imports it into the engine and pushes it to the registry; returns its reference.
 * @throws MissingProgram when a needed package is absent; PartFailed when engine or registry refuses.
 */
export async function loadBaseImage(name: BaseImageName, target: BaseImageTarget): Promise<string> {
  const { signal } = target;
  await using scratch = await partDirectory({ kind: "image" });
  const tar = name === "busybox" ? await busyboxTar(scratch.path, signal) : await workbenchTar(signal);
  const repository = `${target.registry.host}/base/${name}`;
  const query = new URLSearchParams({ fromSrc: "-", repo: repository, tag: "latest" });
  for (const change of configuration[name]) query.append("changes", change);
  const imported = await callEngine(target.dockerHost, {
    method: "POST",
    path: `/images/create?${query}`,
    headers: { "content-type": "application/x-tar" },
    body: createReadStream(tar),
    signal,
  });
  expectProgress(`import of ${name}`, imported);
  await push(repository, target);
  return baseImageReference(name, target.registry);
}

async function push(repository: string, target: BaseImageTarget): Promise<void> {
  const { username, password, host } = target.registry;
  const login = username === undefined ? {} : { username, password, serveraddress: host };
  const pushed = await callEngine(target.dockerHost, {
    method: "POST",
    path: `/images/${repository}/push?tag=latest`,
    headers: { "x-registry-auth": Buffer.from(JSON.stringify(login)).toString("base64url") },
    signal: target.signal,
  });
  expectProgress(`push of ${repository}`, pushed);
}

/** Removes a base image's tag from the engine, unless a running container still uses it; the registry keeps it. */
export async function unloadBaseImage(name: BaseImageName, target: BaseImageTarget): Promise<void> {
  const answer = await callEngine(target.dockerHost, {
    method: "DELETE",
    path: `/images/${baseImageReference(name, target.registry)}?force=1`,
    signal: target.signal,
  });
  if (answer.status !== 404 && answer.status !== 409) expectSuccess(`removal of ${name}`, answer);
}

async function busyboxTar(scratch: string, signal: AbortSignal): Promise<string> {
  await ensureProgram(BUSYBOX, signal);
  const program = (await run(["sh", "-c", "command -v busybox"], { signal })).trim();
  await expectStatic(program);
  const root = join(scratch, "root");
  for (const folder of ["bin", "usr/bin", "etc", "root", "proc", "sys", "dev", "var", "home"]) {
    await mkdir(join(root, folder), { recursive: true });
  }
  await mkdir(join(root, "tmp"));
  // mkdir's mode is cut by the umask, and /tmp is for everybody.
  await chmod(join(root, "tmp"), 0o1777);
  await chmod(join(root, "root"), 0o700);
  await copyFile(program, join(root, "bin/busybox"));
  await chmod(join(root, "bin/busybox"), 0o755);
  const applets = (await run([program, "--list"], { signal })).trim().split("\n");
  for (const applet of applets.filter((name) => name !== "busybox"))
    await symlink("busybox", join(root, "bin", applet));
  // What `#!/usr/bin/env` needs.
  await symlink("../../bin/busybox", join(root, "usr/bin/env"));
  await writeFile(
    join(root, "etc/passwd"),
    "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
  );
  await writeFile(join(root, "etc/group"), "root:x:0:\nnogroup:x:65534:\n");
  const tar = join(scratch, "busybox.tar");
  await run(["tar", "--create", ...reproducible, "--directory", root, "--file", tar, "."], { signal });
  return tar;
}

/** Options of GNU tar that make the same bytes, and so the same digest, of the same tree. */
const reproducible = [
  "--sort=name",
  "--mtime=@0",
  "--owner=0",
  "--group=0",
  "--numeric-owner",
  "--format=posix",
].concat("--pax-option=delete=atime,delete=ctime");

async function expectStatic(program: string): Promise<void> {
  if (!namesLoader(await readFile(program))) return;
  throw new PartFailed("busybox", `${program} is not static: install the Debian package busybox-static instead`);
}

/** Whether a 64-bit little-endian ELF program has an interpreter segment, which is what linking dynamically adds. */
function namesLoader(elf: Buffer): boolean {
  const [offset, size, count] = [Number(elf.readBigUInt64LE(0x20)), elf.readUInt16LE(0x36), elf.readUInt16LE(0x38)];
  const interpreter = 3;
  return Array.from({ length: count }, (_, i) => elf.readUInt32LE(offset + i * size)).includes(interpreter);
}
