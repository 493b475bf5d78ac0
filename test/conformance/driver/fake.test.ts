import { FakeDriver } from "../../../operator/src/runtime/fake/driver.ts";
import { FakeHost } from "../../../operator/src/runtime/fake/host.ts";
import { type DriverUnderTest, STRANGERS_INSTALLATION } from "./bench.ts";
import { driverContract } from "./contract.ts";

async function makeFake(): Promise<DriverUnderTest> {
  const absentImage = "registry.invalid/absent:1";
  const host = new FakeHost({ pullable: (image) => image !== absentImage });
  return {
    driver: new FakeDriver(host, "test"),
    installation: "test",
    stranger: new FakeDriver(host, STRANGERS_INSTALLATION),
    image: "base:1",
    absentImage,
    async kill(id) {
      host.kill(id);
    },
    async [Symbol.asyncDispose]() {
      // Memory only.
    },
  };
}

driverContract("the fake", makeFake, { runsCommands: false });
