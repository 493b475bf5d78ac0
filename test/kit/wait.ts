export { type EventuallyOptions, eventually } from "../../hack/parts/wait.ts";
