/** An image name cut at its tag or digest. */
export interface ImageReference {
  readonly repository: string;
  /** Tag or `sha256:…`. */
  readonly reference: string;
}

/** Cuts `repository[:tag]` or `repository@digest`; a port is not a tag. No tag is `latest`. */
export function parseImageReference(image: string): ImageReference {
  const at = image.indexOf("@");
  if (at >= 0) return { repository: image.slice(0, at).replace(/:[^/:]*$/, ""), reference: image.slice(at + 1) };
  const match = /^(.*):([^/:]+)$/.exec(image);
  if (match?.[1] === undefined || match[2] === undefined) return { repository: image, reference: "latest" };
  return { repository: match[1], reference: match[2] };
}

/** Host part of a repository as engines read it; Docker Hub when there is none. */
export function registryOf(repository: string): string {
  const [first = "", ...rest] = repository.split("/");
  const isHost = rest.length > 0 && (first.includes(".") || first.includes(":") || first === "localhost");
  return isHost ? first : "https://index.docker.io/v1/";
}
