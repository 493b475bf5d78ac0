import { ConfigError, settingName } from "../config.ts";

/** What listening on a port fails with when the setting is wrong on this machine, and the words for it. */
const WHY: Readonly<Record<string, string>> = {
  EADDRINUSE: "is taken by another process of this machine",
  EACCES: "may not be used by this user",
  EADDRNOTAVAIL: "cannot be listened on at this address",
};

/** Opens what listens on the port of a setting. @throws ConfigError naming the setting where that port cannot be had. */
export async function onPort<R>(setting: "metrics" | "health" | "gateway", open: () => Promise<R>): Promise<R> {
  try {
    return await open();
  } catch (error) {
    if (!(error instanceof Error && "code" in error && "port" in error)) throw error;
    const why = WHY[String(error.code)];
    if (why === undefined) throw error;
    const message = `the port ${error.port} of ${settingName([setting, "port"])} ${why}: end that process, or state another port`;
    throw new ConfigError(message, { cause: error });
  }
}
