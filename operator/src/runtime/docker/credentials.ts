import type { RegistryLogin } from "../../registry/contract.ts";

/** The header with which an engine authenticates to a registry for one call; it stores nothing. */
export function registryAuth(login: RegistryLogin | undefined, registry: string): Readonly<Record<string, string>> {
  const auth = login === undefined ? {} : { ...login, serveraddress: registry };
  return { "x-registry-auth": Buffer.from(JSON.stringify(auth)).toString("base64url") };
}

/** The words of an engine without anything that came from a login: registries and proxies quote requests. */
export function withoutCredentials(words: string, login: RegistryLogin | undefined): string {
  const withoutUserinfo = words.replace(/\/\/[^/\s@]+@/g, "//");
  if (login === undefined) return withoutUserinfo;
  const basic = Buffer.from(`${login.username}:${login.password}`).toString("base64");
  const secrets = [login.password, encodeURIComponent(login.password), basic].filter((secret) => secret !== "");
  return secrets.reduce((text, secret) => text.replaceAll(secret, "***"), withoutUserinfo);
}
