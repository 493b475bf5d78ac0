/** A registry client whose credentials follow their source: a rotated Secret or CA needs no restart. */
import type { Clock } from "../reconciler/clock.ts";
import { wordsOf } from "../reconciler/words-of.ts";
import type { RegistryClient, RegistryEndpoint, RegistryLogin } from "./contract.ts";
import { isRegistryError, RegistryError } from "./errors.ts";

/** What can be rotated. */
export interface RegistryCredentials {
  readonly login?: RegistryLogin | undefined;
  readonly ca?: string | undefined;
}

export interface FreshClientOptions {
  readonly url: string;
  /** As read when the process started. */
  readonly first: RegistryCredentials;
  readonly read: (signal: AbortSignal) => Promise<RegistryCredentials>;
  readonly open: (endpoint: RegistryEndpoint) => RegistryClient;
  readonly clock: Clock;
}

/** Credentials are read again at the latest after this. */
const FRESH_MS = 60_000;
/** And no sooner than this after the last reading, when the registry refuses them. */
const PAUSE_MS = 5_000;
const READ_DEADLINE_MS = 10_000;

/** One set of credentials and the client that speaks with them. */
interface Generation {
  readonly credentials: RegistryCredentials;
  readonly client: RegistryClient;
  /** Calls and streams that use it now; it is closed when the last ends. */
  uses: number;
}

/**
 * Calls go to a client with the current credentials. A call that is refused (401, 403) is made once more when the
 * credentials turn out to be rotated; an upload, whose content is used up, is not. Credentials that cannot be read leave the
 * old ones in use: what was the matter is told with the next refusal.
 */
export function createFreshClient(options: FreshClientOptions): RegistryClient {
  return new FreshClient(options);
}

class FreshClient implements RegistryClient {
  readonly endpoint: RegistryEndpoint;
  readonly #options: FreshClientOptions;
  #current: Generation;
  #readAt: number;
  #reading: Promise<void> | undefined;
  #problem: string | undefined;
  readonly #open = new Set<Generation>();

  constructor(options: FreshClientOptions) {
    this.#options = options;
    this.#current = this.#begin(options.first);
    this.#readAt = options.clock.now();
    const currentCredentials = (): RegistryCredentials => this.#credentialsNow();
    this.endpoint = {
      url: options.url,
      get login() {
        return currentCredentials().login;
      },
      get ca() {
        return currentCredentials().ca;
      },
    };
  }

  getManifest: RegistryClient["getManifest"] = (...call) => this.#call((client) => client.getManifest(...call));
  putManifest: RegistryClient["putManifest"] = (...call) => this.#call((client) => client.putManifest(...call));
  deleteManifest: RegistryClient["deleteManifest"] = (...call) =>
    this.#call((client) => client.deleteManifest(...call));
  listTags: RegistryClient["listTags"] = (...call) => this.#call((client) => client.listTags(...call));
  listRepositories: RegistryClient["listRepositories"] = (...call) =>
    this.#call((client) => client.listRepositories(...call));
  getBlob: RegistryClient["getBlob"] = (...call) => this.#call((client) => client.getBlob(...call));
  verifyBlob: RegistryClient["verifyBlob"] = (...call) => this.#call((client) => client.verifyBlob(...call));
  putBlob: RegistryClient["putBlob"] = (...call) => this.#call((client) => client.putBlob(...call));
  mountBlob: RegistryClient["mountBlob"] = (...call) => this.#call((client) => client.mountBlob(...call));

  async uploadBlob(...call: Parameters<RegistryClient["uploadBlob"]>) {
    await this.#refreshWhenDue();
    const generation = this.#current;
    try {
      return await this.#using(generation, (client) => client.uploadBlob(...call));
    } catch (error) {
      if (isRegistryError(error, "Unauthorized")) await this.#isRotated(generation);
      throw this.#explained(error);
    }
  }

  async *streamBlob(...call: Parameters<RegistryClient["streamBlob"]>): AsyncIterable<Uint8Array> {
    await this.#refreshWhenDue();
    for (let attempt = 1; ; attempt++) {
      const generation = this.#current;
      let hasBegun = false;
      generation.uses += 1;
      try {
        for await (const chunk of generation.client.streamBlob(...call)) {
          hasBegun = true;
          yield chunk;
        }
        return;
      } catch (error) {
        const isFinal = hasBegun || attempt > 1 || !isRegistryError(error, "Unauthorized");
        if (isFinal || !(await this.#isRotated(generation))) throw this.#explained(error);
      } finally {
        await this.#end(generation);
      }
    }
  }

  async close(): Promise<void> {
    const open = [...this.#open];
    this.#open.clear();
    await Promise.all(open.map(({ client }) => client.close()));
  }

  async #call<R>(use: (client: RegistryClient) => Promise<R>): Promise<R> {
    await this.#refreshWhenDue();
    const generation = this.#current;
    try {
      return await this.#using(generation, use);
    } catch (error) {
      if (!isRegistryError(error, "Unauthorized")) throw error;
      if (!(await this.#isRotated(generation))) throw this.#explained(error);
      return await this.#using(this.#current, use);
    }
  }

  async #using<R>(generation: Generation, use: (client: RegistryClient) => Promise<R>): Promise<R> {
    generation.uses += 1;
    try {
      return await use(generation.client);
    } finally {
      await this.#end(generation);
    }
  }

  #begin(credentials: RegistryCredentials): Generation {
    const generation = { credentials, client: this.#options.open({ url: this.#options.url, ...credentials }), uses: 0 };
    this.#open.add(generation);
    return generation;
  }

  async #end(generation: Generation): Promise<void> {
    generation.uses -= 1;
    await this.#closeIfRetired(generation);
  }

  /** Closing a client cuts its connections: not before its last call has ended. */
  async #closeIfRetired(generation: Generation): Promise<void> {
    if (generation === this.#current || generation.uses > 0 || !this.#open.delete(generation)) return;
    await generation.client.close();
  }

  /** Whoever reads the login passes it on to an engine and calls nothing here: the reading is begun for the next time. */
  #credentialsNow(): RegistryCredentials {
    if (this.#age() >= FRESH_MS) void this.#refresh();
    return this.#current.credentials;
  }

  async #refreshWhenDue(): Promise<void> {
    if (this.#age() >= FRESH_MS) await this.#refresh();
  }

  /** Whether other credentials than the refused ones are in use by now. */
  async #isRotated(refused: Generation): Promise<boolean> {
    if (this.#current === refused && this.#age() >= PAUSE_MS) await this.#refresh();
    return this.#current !== refused;
  }

  #age(): number {
    return this.#options.clock.now() - this.#readAt;
  }

  /** Never rejects. Callers share one reading, so it heeds nobody's signal and has a deadline of its own. */
  #refresh(): Promise<void> {
    this.#reading ??= this.#readAgain().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #readAgain(): Promise<void> {
    try {
      const read = await this.#options.read(AbortSignal.timeout(READ_DEADLINE_MS));
      this.#problem = undefined;
      const before = this.#current;
      if (isSame(read, before.credentials)) return;
      this.#current = this.#begin(read);
      await this.#closeIfRetired(before);
    } catch (error) {
      this.#problem = wordsOf(error);
    } finally {
      this.#readAt = this.#options.clock.now();
    }
  }

  #explained(error: unknown): unknown {
    if (this.#problem === undefined || !isRegistryError(error, "Unauthorized")) return error;
    return new RegistryError(
      "Unauthorized",
      `${error.message}; its credentials cannot be read anew: ${this.#problem}`,
      {
        status: error.status,
        reasons: error.reasons,
        cause: error,
      },
    );
  }
}

const isSame = (one: RegistryCredentials, other: RegistryCredentials): boolean =>
  one.ca === other.ca && one.login?.username === other.login?.username && one.login?.password === other.login?.password;
