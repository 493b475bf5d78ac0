import { Agent, type Dispatcher, request } from "undici";

/** The bare Engine API over one keep-alive pool: the baseline that every figure of ours stands beside. */
export class BareEngine implements AsyncDisposable {
  readonly #pool: Dispatcher;
  readonly #base: string;

  constructor(dockerHost: string) {
    const socketPath = /^unix:\/\/(.+)$/.exec(dockerHost)?.[1];
    this.#pool = new Agent({ ...(socketPath === undefined ? {} : { connect: { socketPath } }), pipelining: 1 });
    this.#base = socketPath === undefined ? dockerHost.replace(/^tcp:/, "http:") : "http://engine";
  }

  /** Makes and starts a container with the limits of a session, and runs a first command in it. Returns its id. */
  async boot(image: string): Promise<string> {
    await this.#call("GET", `/images/${encodeURIComponent(image)}/json`);
    const created = await this.#call("POST", "/containers/create", {
      Image: image,
      Entrypoint: ["sleep"],
      Cmd: ["1000000"],
      HostConfig: {
        Memory: 2 * 1024 ** 3,
        PidsLimit: 512,
        SecurityOpt: ["no-new-privileges"],
        LogConfig: { Type: "none" },
      },
    });
    const { Id: id } = JSON.parse(created);
    await this.#call("POST", `/containers/${id}/start`);
    await this.exec(id, ["true"]);
    return id;
  }

  /** One command to its exit code. */
  async exec(container: string, command: readonly string[]): Promise<number> {
    const { Id: id } = JSON.parse(
      await this.#call("POST", `/containers/${container}/exec`, {
        Cmd: command,
        AttachStdout: true,
        AttachStderr: true,
      }),
    );
    await this.#call("POST", `/exec/${id}/start`, { Detach: false, Tty: false });
    return JSON.parse(await this.#call("GET", `/exec/${id}/json`)).ExitCode;
  }

  /** What hibernating a container takes at least: pause, commit, push, remove. */
  async commitAndPush(container: string, repository: string, tag: string): Promise<void> {
    await this.#call("POST", `/containers/${container}/pause`);
    const query = new URLSearchParams({ container, repo: repository, tag, pause: "0" });
    await this.#call("POST", `/commit?${query}`, {});
    const pushed = await this.#call("POST", `/images/${encodeURIComponent(repository)}/push?tag=${tag}`, undefined, {
      "x-registry-auth": Buffer.from("{}").toString("base64url"),
    });
    if (pushed.includes('"errorDetail"')) throw new Error(`push: ${pushed.slice(-300)}`);
    await this.remove(container);
  }

  async remove(container: string): Promise<void> {
    await this.#call("DELETE", `/containers/${container}?force=1`);
  }

  async removeImage(name: string): Promise<void> {
    await this.#call("DELETE", `/images/${encodeURIComponent(name)}?force=1`);
  }

  async #call(method: Dispatcher.HttpMethod, path: string, body?: unknown, headers: Record<string, string> = {}) {
    const answer = await request(`${this.#base}${path}`, {
      method,
      dispatcher: this.#pool,
      headers: { "content-type": "application/json", ...headers },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      headersTimeout: 120_000,
      bodyTimeout: 120_000,
    });
    const text = await answer.body.text();
    if (answer.statusCode >= 400) throw new Error(`${method} ${path}: ${answer.statusCode} ${text.slice(0, 300)}`);
    return text;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#pool.close();
  }
}
