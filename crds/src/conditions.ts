/**
 * Types and reasons of conditions. Reasons of Events are the same constants. `Ready` is the positive summary;
 * `Reconciling` and `Stalled` are present only while true (the kstatus convention).
 */

export const WORLD_CONDITIONS = {
  /** Sandboxes can boot from `status.head`. */
  Ready: "Ready",
  Reconciling: "Reconciling",
  /** Nothing will change until somebody changes the spec. */
  Stalled: "Stalled",
  /** The source image was resolved to a digest and copied into the World's repository as version 0. */
  GenesisReady: "GenesisReady",
} as const;

export const WORLD_REASONS = {
  Available: "Available",
  CopyingGenesis: "CopyingGenesis",
  GenesisCopied: "GenesisCopied",
  ImageNotFound: "ImageNotFound",
  ImageNotAllowed: "ImageNotAllowed",
  ImageUnauthorized: "ImageUnauthorized",
  PlatformNotOffered: "PlatformNotOffered",
  RuntimeNotFound: "RuntimeNotFound",
  RuntimeNotAllowed: "RuntimeNotAllowed",
  RuntimeAmbiguous: "RuntimeAmbiguous",
  RegistryUnavailable: "RegistryUnavailable",
  PreviousLineageFound: "PreviousLineageFound",
  HeadBehindRegistry: "HeadBehindRegistry",
  InUse: "InUse",
  Publishing: "Publishing",
  Published: "Published",
  Pruned: "Pruned",
  Deleting: "Deleting",
} as const;

export const SANDBOX_CONDITIONS = {
  /** The session answers. Absent, not False, while hibernated. */
  Ready: "Ready",
  Reconciling: "Reconciling",
  Stalled: "Stalled",
  /** The World is held for this session and the Runtime has a slot for it. */
  Admitted: "Admitted",
  /** No compute exists and the session's work is in `status.lastSnapshot` or in its base. */
  Hibernated: "Hibernated",
  /** Terminal: the session ended; `status.closed` names its version. */
  Closed: "Closed",
  /** The session's work could not be published; the message says where it is kept. */
  SnapshotFailed: "SnapshotFailed",
  /** The session's container is gone without having been captured. */
  ComputeLost: "ComputeLost",
} as const;

export const SANDBOX_REASONS = {
  Running: "Running",
  Provisioning: "Provisioning",
  PullingImage: "PullingImage",
  Admitted: "Admitted",
  WorldNotFound: "WorldNotFound",
  WorldNotReady: "WorldNotReady",
  WorldReplaced: "WorldReplaced",
  WorldHeld: "WorldHeld",
  WorldDeleting: "WorldDeleting",
  VersionNotFound: "VersionNotFound",
  NotAtHead: "NotAtHead",
  RuntimeNotFound: "RuntimeNotFound",
  RuntimeNotAllowed: "RuntimeNotAllowed",
  RuntimeAmbiguous: "RuntimeAmbiguous",
  RuntimeFull: "RuntimeFull",
  RuntimeCordoned: "RuntimeCordoned",
  RuntimeUnreachable: "RuntimeUnreachable",
  CapabilityMissing: "CapabilityMissing",
  PlatformMismatch: "PlatformMismatch",
  SecretNotFound: "SecretNotFound",
  SecretKeyNotFound: "SecretKeyNotFound",
  ImageUnavailable: "ImageUnavailable",
  ImageNotAllowed: "ImageNotAllowed",
  ComputeConflict: "ComputeConflict",
  DeadlineNear: "DeadlineNear",
  DeadlinePassed: "DeadlinePassed",
  LifetimePassed: "LifetimePassed",
  ModeHibernated: "ModeHibernated",
  Hibernating: "Hibernating",
  Hibernated: "Hibernated",
  Snapshotting: "Snapshotting",
  Snapshotted: "Snapshotted",
  Touched: "Touched",
  Waking: "Waking",
  Closing: "Closing",
  Closed: "Closed",
  Discarded: "Discarded",
  Deleting: "Deleting",
  ContainerExited: "ContainerExited",
  OutOfMemory: "OutOfMemory",
  ContainerGone: "ContainerGone",
  HostUnreachable: "HostUnreachable",
  HostDiskFull: "HostDiskFull",
  RegistryUnavailable: "RegistryUnavailable",
  PushFailed: "PushFailed",
  CaptureFailed: "CaptureFailed",
  VerificationFailed: "VerificationFailed",
  Rescued: "Rescued",
} as const;

export const RUNTIME_CONDITIONS = {
  /** At least one host answers and takes Sandboxes. */
  Ready: "Ready",
  Reconciling: "Reconciling",
  Stalled: "Stalled",
  /** Every host answers. */
  Available: "Available",
} as const;

export const RUNTIME_REASONS = {
  AllHostsReachable: "AllHostsReachable",
  SomeHostsUnreachable: "SomeHostsUnreachable",
  NoHostReachable: "NoHostReachable",
  Probing: "Probing",
  Cordoned: "Cordoned",
  PlatformsDiffer: "PlatformsDiffer",
  DefaultAmbiguous: "DefaultAmbiguous",
  TlsSecretNotFound: "TlsSecretNotFound",
  TlsSecretInvalid: "TlsSecretInvalid",
  CapabilityMissing: "CapabilityMissing",
  HostInUse: "HostInUse",
  InUse: "InUse",
  Full: "Full",
} as const;

export type WorldConditionType = (typeof WORLD_CONDITIONS)[keyof typeof WORLD_CONDITIONS];
export type WorldReason = (typeof WORLD_REASONS)[keyof typeof WORLD_REASONS];
export type SandboxConditionType = (typeof SANDBOX_CONDITIONS)[keyof typeof SANDBOX_CONDITIONS];
export type SandboxReason = (typeof SANDBOX_REASONS)[keyof typeof SANDBOX_REASONS];
export type RuntimeConditionType = (typeof RUNTIME_CONDITIONS)[keyof typeof RUNTIME_CONDITIONS];
export type RuntimeReason = (typeof RUNTIME_REASONS)[keyof typeof RUNTIME_REASONS];
