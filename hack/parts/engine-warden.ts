// Run when the owner of a private dockerd is gone without having cleaned up; see `guard` in engine.ts.
import { rm } from "node:fs/promises";
import { cleanEngine } from "./engine-cleanup.ts";

const [directory, removeFolder] = process.argv.slice(2);
if (directory === undefined) throw new TypeError("usage: engine-warden.ts DIRECTORY [remove]");
await cleanEngine(directory, AbortSignal.timeout(60_000));
if (removeFolder === "remove") await rm(directory, { recursive: true, force: true });
