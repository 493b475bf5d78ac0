// Holds one part and does nothing else, so that a test can kill the process that owns a part.
//   node owner.ts control-plane|engine|registry   → prints the part's folder on a line
import { dirname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { controlPlane, engine, registry } from "../../kit/index.ts";

async function start(part: string | undefined): Promise<string> {
  switch (part) {
    case "control-plane":
      return (await controlPlane({ own: true })).directory;
    case "engine":
      return dirname((await engine({ own: true })).dockerHost.replace("unix://", ""));
    case "registry":
      return dirname((await registry({ own: true })).dataDirectory);
    default:
      throw new TypeError("usage: owner.ts control-plane|engine|registry");
  }
}

process.stdout.write(`${await start(process.argv[2])}\n`);
await sleep(600_000);
