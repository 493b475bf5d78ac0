import assert from "node:assert/strict";
import { test } from "node:test";
import type { WorldStatus, WorldVersion } from "@agentworlds/crds";
import fc from "fast-check";
import { at, versionOf } from "../runtime/test-objects.test-kit.ts";
import { judgeCommit, judgeHold, judgeReservation } from "./lineage.ts";

const genesis = versionOf(0);
const headOf = ({ version, digest }: WorldVersion) => ({ version, digest, image: `registry/lab@${digest}` });

/**
 * A World and sessions that publish to it. Each session's operator may die between any two steps and begin again with the same
 * operation id; the one that died may still get a last commit through. Holds end at any time, politely or not.
 */
const SESSIONS = ["a", "b", "c"];

interface Step {
  readonly session: string;
  readonly do: "hold" | "letGo" | "reserve" | "commit" | "lateCommit" | "abandon" | "crash";
}

interface Belief {
  readonly version: number;
  readonly base: WorldVersion["digest"] | undefined;
}

interface Publisher {
  /** What the session's work is based on: head when it took hold, then its own versions. */
  base?: WorldVersion["digest"] | undefined;
  /** What the operator believes to have reserved. A crash forgets it. */
  believed?: Belief;
  /** What an operator that died believed. */
  late?: Belief;
  /** How often this session has published; part of the operation id, because its next snapshot is another operation. */
  round: number;
}

class Lineage {
  status: WorldStatus = { observedGeneration: 1, versions: [genesis], head: headOf(genesis), nextVersion: 1 };
  /** Every commit that was carried out, in order. */
  readonly committed: { operation: string; version: number }[] = [];
  readonly reservedNumbers: number[] = [];
  readonly publishers = new Map(SESSIONS.map((session): [string, Publisher] => [session, { round: 0 }]));

  take({ session, do: what }: Step): void {
    const publisher = this.publishers.get(session) ?? { round: 0 };
    const operation = `${session}-${publisher.round}`;
    switch (what) {
      case "hold":
        this.#hold(session, publisher);
        break;
      case "letGo":
        this.#letGo(session);
        break;
      case "reserve":
        this.#reserve(session, operation, publisher);
        break;
      case "commit":
        this.#commit(operation, publisher.believed);
        break;
      case "lateCommit":
        this.#commit(operation, publisher.late);
        break;
      case "abandon":
        if (this.status.pending?.operation === operation) this.#write({ pending: null });
        break;
      case "crash":
        if (publisher.believed) publisher.late = publisher.believed;
        delete publisher.believed;
    }
  }

  #write({ pending, ...fields }: { [Field in keyof WorldStatus]?: WorldStatus[Field] | null }): void {
    const { pending: before, ...rest } = this.status;
    const next = pending === undefined ? before : (pending ?? undefined);
    this.status = { ...rest, ...(fields as Partial<WorldStatus>), ...(next ? { pending: next } : {}) };
  }

  #hold(uid: string, publisher: Publisher): void {
    const verdict = judgeHold(this.status, { sandbox: uid, uid, causedBy: { user: "ada" }, at: at(0) });
    if (verdict.kind !== "hold") return;
    this.#write({ holder: verdict.holder });
    publisher.base = this.status.head?.digest;
  }

  #letGo(uid: string): void {
    if (this.status.holder?.uid !== uid) return;
    const { holder: _, ...rest } = this.status;
    this.status = rest;
  }

  #reserve(uid: string, operation: string, publisher: Publisher): void {
    const verdict = judgeReservation(this.status, {
      operation,
      sandbox: { name: uid, uid },
      ...(publisher.base === undefined ? {} : { base: publisher.base }),
      at: at(this.committed.length),
    });
    if (verdict.kind === "committed") {
      publisher.round += 1;
      publisher.base = verdict.version.digest;
      delete publisher.believed;
      return;
    }
    if (verdict.kind === "refused") return;
    if (verdict.kind === "reserve") {
      this.reservedNumbers.push(verdict.pending.version);
      this.#write({ pending: verdict.pending, nextVersion: verdict.nextVersion });
    }
    publisher.believed = { version: verdict.pending.version, base: verdict.pending.base };
  }

  #commit(operation: string, belief: Belief | undefined): void {
    if (!belief) return;
    const { version, base } = belief;
    const made = versionOf(version, { operation, ...(base === undefined ? {} : { parent: base }) });
    const verdict = judgeCommit(this.status, {
      operation,
      version: made,
      image: `registry/lab@${made.digest}`,
    });
    if (verdict.kind !== "commit") return;
    this.#write(verdict.patch);
    this.committed.push({ operation, version });
  }
}

test("however reservations, commits, failures and crashes interleave: numbers only grow, head is the last commit, nothing is lost or made twice", () => {
  const step: fc.Arbitrary<Step> = fc.record({
    session: fc.constantFrom(...SESSIONS),
    do: fc.constantFrom("hold", "hold", "letGo", "reserve", "reserve", "commit", "lateCommit", "abandon", "crash"),
  });
  let commits = 0;
  fc.assert(
    fc.property(fc.array(step, { maxLength: 120, size: "max" }), (steps) => {
      const lineage = new Lineage();
      for (const one of steps) {
        const before = lineage.status;
        lineage.take(one);
        const { versions = [], head, nextVersion = 0, pending } = lineage.status;
        assert.ok(nextVersion >= (before.nextVersion ?? 0), "a burned number does not come back");
        if (pending) assert.ok(pending.version < nextVersion && pending.version > (head?.version ?? -1));
        const isCommitted = lineage.committed.some(({ operation }) => operation === pending?.operation);
        assert.ok(!isCommitted, "an operation that has its version reserves nothing more");
        if (before.pending && pending) assert.deepEqual(pending, before.pending, "a reservation is never replaced");
        assert.deepEqual(
          versions.slice(1).map(({ operation, version }) => ({ operation, version })),
          lineage.committed,
          "every commit stays listed, in order",
        );
        assert.equal(head?.version, versions.at(-1)?.version);
        assert.equal(head?.digest, versions.at(-1)?.digest);
      }
      const numbers = lineage.committed.map(({ version }) => version);
      assert.deepEqual(
        numbers,
        [...new Set(numbers)].sort((a, b) => a - b),
        "numbers strictly increase",
      );
      assert.equal(
        new Set(lineage.reservedNumbers).size,
        lineage.reservedNumbers.length,
        "no number is given out twice",
      );
      const operations = lineage.committed.map(({ operation }) => operation);
      assert.equal(new Set(operations).size, operations.length, "no operation makes two versions");
      const listed = lineage.status.versions ?? [];
      for (const [index, version] of listed.entries()) {
        if (index > 0) assert.equal(version.parent, listed[index - 1]?.digest, "each derives from the head before it");
      }
      commits += lineage.committed.length;
    }),
    { numRuns: 500 },
  );
  assert.ok(commits > 100, `the interleavings committed only ${commits} versions: they prove nothing`);
});
