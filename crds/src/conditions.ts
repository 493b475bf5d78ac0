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
  Retrying: "Retrying",
  ImageNotFound: "ImageNotFound",
  ImageNotAllowed: "ImageNotAllowed",
  ImageUnauthorized: "ImageUnauthorized",
  ImageUnsupported: "ImageUnsupported",
  PlatformNotOffered: "PlatformNotOffered",
  RuntimeNotFound: "RuntimeNotFound",
  RuntimeNotReady: "RuntimeNotReady",
  RuntimeNotAllowed: "RuntimeNotAllowed",
  RuntimeDeleting: "RuntimeDeleting",
  NoDefaultRuntime: "NoDefaultRuntime",
  SeveralDefaultRuntimes: "SeveralDefaultRuntimes",
  RegistryUnavailable: "RegistryUnavailable",
  RegistryMoved: "RegistryMoved",
  AnotherPublicationPending: "AnotherPublicationPending",
  NotTheHolder: "NotTheHolder",
  BaseBehindHead: "BaseBehindHead",
  ReservationLost: "ReservationLost",
  GenesisReady: "GenesisReady",
  Pruned: "Pruned",
  BeyondKeepVersions: "BeyondKeepVersions",
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
  Admitted: "Admitted",
  Provisioning: "Provisioning",
  Waking: "Waking",
  Hibernating: "Hibernating",
  Retrying: "Retrying",
  WorldNotFound: "WorldNotFound",
  WorldNotReady: "WorldNotReady",
  WorldReplaced: "WorldReplaced",
  WorldHeld: "WorldHeld",
  WorldDeleting: "WorldDeleting",
  WorldGone: "WorldGone",
  VersionNotFound: "VersionNotFound",
  NotAtHead: "NotAtHead",
  TooManyLayers: "TooManyLayers",
  PlatformMismatch: "PlatformMismatch",
  RuntimeNotFound: "RuntimeNotFound",
  RuntimeNotReady: "RuntimeNotReady",
  RuntimeNotAllowed: "RuntimeNotAllowed",
  RuntimeDeleting: "RuntimeDeleting",
  RuntimeFull: "RuntimeFull",
  RuntimeCordoned: "RuntimeCordoned",
  RuntimeUnreachable: "RuntimeUnreachable",
  NoDefaultRuntime: "NoDefaultRuntime",
  SeveralDefaultRuntimes: "SeveralDefaultRuntimes",
  CapabilityMissing: "CapabilityMissing",
  ImageNotFound: "ImageNotFound",
  ImageNotAllowed: "ImageNotAllowed",
  ImageUnauthorized: "ImageUnauthorized",
  ImageUnsupported: "ImageUnsupported",
  ImageUnavailable: "ImageUnavailable",
  SecretNotFound: "SecretNotFound",
  SecretKeyNotFound: "SecretKeyNotFound",
  RegistryUnavailable: "RegistryUnavailable",
  ComputeConflict: "ComputeConflict",
  HostUnreachable: "HostUnreachable",
  ContainerGone: "ContainerGone",
  PublishFailed: "PublishFailed",
  SnapshotFailed: "SnapshotFailed",
  Snapshotted: "Snapshotted",
  Rescued: "Rescued",
  DeadlinePassed: "DeadlinePassed",
  LifetimePassed: "LifetimePassed",
  CloseRequested: "CloseRequested",
  SnapshotRequested: "SnapshotRequested",
  SandboxDeleted: "SandboxDeleted",
  ModeHibernated: "ModeHibernated",
  WorldDeleted: "WorldDeleted",
  ContainerExited: "ContainerExited",
  OutOfMemory: "OutOfMemory",
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
  Available: "Available",
  Cordoned: "Cordoned",
  AllHostsReachable: "AllHostsReachable",
  SomeHostsUnreachable: "SomeHostsUnreachable",
  NoHostReachable: "NoHostReachable",
  PlatformsDiffer: "PlatformsDiffer",
  HostInUse: "HostInUse",
  Orphaned: "Orphaned",
  Retrying: "Retrying",
} as const;

export type WorldConditionType = (typeof WORLD_CONDITIONS)[keyof typeof WORLD_CONDITIONS];
export type WorldReason = (typeof WORLD_REASONS)[keyof typeof WORLD_REASONS];
export type SandboxConditionType = (typeof SANDBOX_CONDITIONS)[keyof typeof SANDBOX_CONDITIONS];
export type SandboxReason = (typeof SANDBOX_REASONS)[keyof typeof SANDBOX_REASONS];
export type RuntimeConditionType = (typeof RUNTIME_CONDITIONS)[keyof typeof RUNTIME_CONDITIONS];
export type RuntimeReason = (typeof RUNTIME_REASONS)[keyof typeof RUNTIME_REASONS];
