// Preloaded by hack/run-tests.ts into every test file's process: properties draw the samples of the one seed, and print it
// when they fail.
import fc from "fast-check";
import { sampleSeed } from "./seed.ts";

fc.configureGlobal({ seed: sampleSeed() });
