/**
 * Every test that needs no parts, in one process: a process for each of some two hundred files cost more than what they
 * test (154 against 52 s of CPU). Nothing of one file can reach another: modules keep no state (docs/architecture.md).
 */
import { join } from "node:path";
import { unitFiles } from "./files.ts";

const ROOT = join(import.meta.dirname, "../..");

for (const file of unitFiles(ROOT)) await import(join(ROOT, file));
