export { type EventuallyOptions, eventually, eventuallyHolds } from "../../hack/parts/wait.ts";
