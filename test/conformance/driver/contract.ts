import { after, before, describe } from "node:test";
import { Bench, type DriverUnderTest } from "./bench.ts";
import { commitContract } from "./commit-contract.ts";
import { execContract } from "./exec-contract.ts";
import { fileContract } from "./file-contract.ts";
import { lifecycleContract } from "./lifecycle-contract.ts";

/** What a driver can be held to. */
export interface ContractOptions {
  /** False for a driver without processes. */
  readonly runsCommands: boolean;
}

/** Opens a use of the driver under test. */
export type OpenBench = () => Bench;

/** Registers the suite that every driver passes (DESIGN §7). */
export function driverContract(
  name: string,
  makeDriver: () => Promise<DriverUnderTest>,
  options: ContractOptions,
): void {
  describe(`the driver contract on ${name}`, () => {
    let under: DriverUnderTest | undefined;
    before(async () => {
      under = await makeDriver();
    });
    after(async () => {
      await under?.[Symbol.asyncDispose]();
    });
    const open: OpenBench = () => {
      if (under === undefined) throw new Error("the driver did not come up");
      return new Bench(under);
    };
    lifecycleContract(open, () => under?.absentImage ?? "");
    fileContract(open, options);
    commitContract(open);
    if (options.runsCommands) execContract(open);
  });
}
