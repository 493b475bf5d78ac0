import { randomUUID } from "node:crypto";
import { callEngine, expectSuccess } from "../../../hack/parts/engine-api.ts";
import { createDockerDriver } from "../../../operator/src/runtime/docker/driver.ts";
import { loadHelper } from "../../../operator/src/runtime/helper.ts";
import { baseImage, engine, type RegistryAddress, registry } from "../../kit/index.ts";
import { type DriverUnderTest, STRANGERS_INSTALLATION } from "./bench.ts";

/** The Docker driver with what is around it. */
export interface DockerUnderTest extends DriverUnderTest {
  readonly dockerHost: string;
  readonly registry: RegistryAddress;
}

/** A driver for the kit's engine, with the busybox base image. Containers and images of tests go; the helper stays. */
export async function makeDocker(): Promise<DockerUnderTest> {
  await using undo = new AsyncDisposableStack();
  const docker = undo.use(await engine());
  const images = undo.use(await registry());
  const base = undo.use(await baseImage("busybox", { engine: docker, registry: images }));
  const { dockerHost } = docker;
  const driverOf = (owner: string) =>
    undo.adopt(
      createDockerDriver({
        installation: owner,
        endpoint: dockerHost,
        helper: (platform, signal) => loadHelper({ platform }, signal),
      }),
      (one) => one.close(),
    );
  const installation = `test-${randomUUID()}`;
  const driver = driverOf(installation);
  const stranger = driverOf(STRANGERS_INSTALLATION);
  const owned = undo.move();
  return {
    driver,
    installation,
    stranger,
    dockerHost,
    registry: images,
    image: base.reference,
    absentImage: `${images.host}/absent:1`,
    async kill(id) {
      const path = `/containers/${id}/kill`;
      const call = { method: "POST", path, signal: AbortSignal.timeout(30_000) };
      expectSuccess(`kill of ${id}`, await callEngine(dockerHost, call));
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}
