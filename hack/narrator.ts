import { styleText } from "node:util";

/** Where the narration goes; `isTTY` as Node says it of a stream. */
export interface Audience {
  readonly isTTY?: boolean;
  write(text: string): unknown;
}

/** Prints what happens, with the time since the start and of each step. Styled for a terminal only, and not under NO_COLOR. */
export class Narrator {
  readonly #audience: Audience;
  readonly #isStyled: boolean;
  readonly #startedAt = performance.now();
  #stepAt = this.#startedAt;

  constructor(audience: Audience, env: NodeJS.ProcessEnv) {
    this.#audience = audience;
    this.#isStyled = audience.isTTY === true && (env["NO_COLOR"] ?? "") === "" && env["TERM"] !== "dumb";
  }

  step(sentence: string): void {
    this.#done();
    this.#audience.write(`\n${this.#styled("bold", `▸ ${sentence}`)}\n`);
    this.#stepAt = performance.now();
  }

  say(text: string): void {
    for (const line of text.trimEnd().split("\n")) this.#audience.write(`    ${line}\n`);
  }

  #done(): void {
    if (this.#stepAt === this.#startedAt) return;
    const seconds = (performance.now() - this.#stepAt) / 1000;
    const passed = `${seconds.toFixed(1)} s (${this.elapsed().toFixed(1)} s in all)`;
    this.#audience.write(`    ${this.#styled("dim", passed)}\n`);
  }

  end(): void {
    this.#done();
  }

  /** Seconds since the start. */
  elapsed(): number {
    return (performance.now() - this.#startedAt) / 1000;
  }

  #styled(style: "bold" | "dim", text: string): string {
    return this.#isStyled ? styleText(style, text, { validateStream: false }) : text;
  }
}
