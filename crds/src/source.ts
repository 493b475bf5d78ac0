import { matching } from "./schema.ts";

/** `host[:port]/path:tag@digest`, the parts after the first optional; no scheme, no credentials. */
const IMAGE =
  /^([a-zA-Z0-9]([a-zA-Z0-9._-]*[a-zA-Z0-9])?|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?(\/[a-z0-9]([a-z0-9._-]*[a-z0-9])?)*(:[a-zA-Z0-9_][a-zA-Z0-9_.-]*)?(@sha256:[0-9a-f]{64})?$/;

/** An image by tag or digest, at most 512 characters. */
export const imageReference = () =>
  matching(IMAGE, {
    max: 512,
    message:
      "must be an image reference without a scheme, such as ghcr.io/acme/tools:1.4 or ghcr.io/acme/tools@sha256:…",
  });

/** `[host[:port]/]path`, at least two components; no tag, no digest, no scheme. */
const REPOSITORY =
  /^([a-zA-Z0-9]([a-zA-Z0-9._-]*[a-zA-Z0-9])?|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?(\/[a-z0-9]([a-z0-9._-]*[a-z0-9])?)+$/;

/** A repository of the installation's registry, at most 512 characters. */
export const repositoryName = () =>
  matching(REPOSITORY, {
    max: 512,
    message:
      "must be a repository without tag and digest, such as registry.example.com/worlds/1a2b3c4d5e/team/website-0a1b2c3d",
  });
