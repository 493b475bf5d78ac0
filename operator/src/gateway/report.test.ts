import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, request, type ServerResponse } from "node:http";
import { Readable, Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { test } from "node:test";
import { pino } from "pino";
import { RuntimeError } from "../runtime/errors.ts";
import { requestBytes } from "./body.ts";
import { Failure } from "./failure.ts";
import { type Exchange, reportFailure } from "./report.ts";

interface Line {
  readonly level: number;
  readonly msg: string;
}
const DEBUG = 20;
const ERROR = 50;

type Work = (exchange: Exchange) => Promise<void>;

/** Serves one request by `work`, whose failure is reported, to a client that goes away or stays; what was logged and answered. */
async function logged(work: Work, client: "leaves" | "stays"): Promise<{ lines: Line[]; status: number | undefined }> {
  const lines: Line[] = [];
  const sink = new Writable({
    write(chunk, _, done) {
      lines.push(JSON.parse(String(chunk)));
      done();
    },
  });
  const logger = pino({ level: "debug" }, sink);
  const reported = Promise.withResolvers<void>();
  const begun = Promise.withResolvers<void>();
  await using server = createServer((incoming, response) => {
    const gone = new AbortController();
    response.once("close", () => {
      if (!response.writableFinished) gone.abort(new DOMException("the client went away", "AbortError"));
    });
    const exchange = { request: incoming, response, logger, gone: gone.signal };
    const ref = { namespace: "n", name: "s" };
    begun.resolve();
    work(exchange).catch((error: unknown) => {
      reportFailure(exchange, error, { action: "exec", resource: "sandboxes", ref });
      reported.resolve();
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  assert.ok(address !== null && typeof address === "object");
  const sent = request({ port: address.port, method: "PUT", headers: { "content-length": "9" } });
  sent.on("error", () => undefined);
  const answered = once(sent, "response").then(
    ([{ statusCode }]) => Number(statusCode),
    () => undefined,
  );
  sent.write("half");
  await begun.promise;
  if (client === "leaves") sent.destroy();
  await reported.promise;
  const status = client === "leaves" ? undefined : await answered;
  sent.destroy();
  return { lines, status };
}

const untilGone = async ({ gone }: Exchange): Promise<void> => {
  if (!gone.aborted) await once(gone, "abort");
};

const departures: [what: string, work: Work][] = [
  [
    "a call that it was waiting for",
    async (exchange) => {
      await untilGone(exchange);
      throw exchange.gone.reason;
    },
  ],
  [
    "its body being read",
    async ({ request: incoming, gone }) => {
      for await (const _ of requestBytes(incoming, gone));
    },
  ],
  [
    "its body being read by whoever takes no signal",
    async ({ request: incoming }) => {
      for await (const _ of incoming);
    },
  ],
  ["an answer being streamed to it", ({ response, gone }) => pipeline(endless(response), response, { signal: gone })],
];

/** Content that waits until nobody can take any more. */
const endless = (response: ServerResponse): Readable =>
  Readable.from(
    (async function* () {
      yield "first";
      await once(response, "close");
      yield "second";
    })(),
  );

for (const [what, work] of departures)
  test(`a client that goes away during ${what} is no failure of the gateway`, async () => {
    const { lines } = await logged(work, "leaves");
    assert.deepEqual(
      lines.map(({ level, msg }) => [level, msg]),
      [[DEBUG, "the client went away before its answer"]],
    );
  });

test("what fails by itself is told as a failure, also when the client has gone", async () => {
  for (const error of [new RuntimeError("HostUnreachable", "reset"), new TypeError("a mistake of our own")]) {
    const { lines } = await logged(async (exchange) => {
      await untilGone(exchange);
      throw error;
    }, "leaves");
    assert.deepEqual(
      lines.map(({ level, msg }) => [level, msg]),
      [[ERROR, "request failed"]],
    );
  }
});

test("a deadline under a client that waits is a failure, and answered", async () => {
  const { lines, status } = await logged(() => Promise.reject(new DOMException("late", "TimeoutError")), "stays");
  assert.equal(status, 504);
  assert.deepEqual(
    lines.map(({ level, msg }) => [level, msg]),
    [[ERROR, "request failed"]],
  );
});

test("a refusal is the client's business", async () => {
  const refusal = new Failure({ status: 409, code: "SessionNotRunning", message: "it sleeps" });
  const { lines, status } = await logged(() => Promise.reject(refusal), "stays");
  assert.equal(status, 409);
  assert.deepEqual(
    lines.map(({ level, msg }) => [level, msg]),
    [[DEBUG, "request refused"]],
  );
});
