/** `@agentworlds/sdk`: Worlds, Sandboxes and their sessions from a program. */

export type {
  Condition,
  LostWork,
  Sandbox,
  SandboxStatus,
  World,
  WorldRescue,
  WorldStatus,
  WorldVersion,
} from "@agentworlds/crds";
export type { AccessOptions } from "./ambient.ts";
export { AgentWorlds, type AgentWorldsOptions } from "./client.ts";
export type { CallOptions } from "./deadline.ts";
export {
  AgentWorldsError,
  ClosedError,
  ConfigurationError,
  ConflictError,
  ConnectionError,
  DeadlineError,
  NotFoundError,
  NotReadyError,
  PermissionError,
  ProtocolError,
  RequestError,
  UnavailableError,
} from "./errors.ts";
export type { ExecResult } from "./exec-result.ts";
export type { ExportResult, RescueList, Rescues } from "./rescues.ts";
export type { CreateSandboxOptions, NamespaceOption, Sandboxes, SandboxSource } from "./sandboxes.ts";
export type { ExecOptions, Session, TouchResult, VersionResult } from "./session.ts";
export type { Progress, WaitOptions } from "./wait-ready.ts";
export type { CreateWorldOptions, Worlds } from "./worlds.ts";
