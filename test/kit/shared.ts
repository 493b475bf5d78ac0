import { type PartsFile, readPartsFile } from "../../hack/parts/parts-file.ts";

/** The parts that a runner shares with every test (env AGENTWORLDS_PARTS names the file), undefined without a runner. */
export async function sharedParts(): Promise<PartsFile | undefined> {
  const path = process.env["AGENTWORLDS_PARTS"];
  return path === undefined || path === "" ? undefined : readPartsFile(path);
}
