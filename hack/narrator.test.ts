import assert from "node:assert/strict";
import { test } from "node:test";
import { type Audience, Narrator } from "./narrator.ts";

const ESCAPE = "\u001b";
const audiences: [name: string, isTTY: boolean | undefined, env: NodeJS.ProcessEnv, isStyled: boolean][] = [
  ["a terminal", true, {}, true],
  ["a file or a pipe", undefined, {}, false],
  ["a terminal under NO_COLOR", true, { NO_COLOR: "1" }, false],
  ["a terminal under an empty NO_COLOR", true, { NO_COLOR: "" }, true],
  ["a terminal that can do nothing", true, { TERM: "dumb" }, false],
];
for (const [name, isTTY, env, isStyled] of audiences) {
  test(`${name} is told the story ${isStyled ? "with" : "without"} escape sequences`, () => {
    let told = "";
    const audience: Audience = { ...(isTTY === undefined ? {} : { isTTY }), write: (text) => (told += text) };
    const narrator = new Narrator(audience, env);
    narrator.step("An agent opens a session");
    narrator.say("one\ntwo\n");
    narrator.end();
    assert.equal(told.includes(ESCAPE), isStyled);
    assert.match(told, /▸ An agent opens a session/);
    assert.match(told, /^ {4}one\n {4}two$/m);
    assert.match(told, /\d\.\d s \(\d\.\d s in all\)/);
  });
}
