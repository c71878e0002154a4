// The environments of a ledger that share this Worker, with the current image of each, in D1.

import { schema as copySchema } from "./copy";
import { Failure } from "./errors";
import { prepare } from "./tables";

const schema = [
  // image is the image as the environment names it. prepared is the same image in the form that starts choose. A
  // removed environment stays for a while, because the platform's usage figures include it. Times are in milliseconds.
  `CREATE TABLE IF NOT EXISTS environments (
    ledger TEXT NOT NULL, id TEXT NOT NULL, image TEXT NOT NULL, prepared TEXT NOT NULL, removed_at INTEGER,
    PRIMARY KEY (ledger, id))`,
  // closed: the last environment is gone and this Worker is about to be deleted, so no environment may be added.
  `CREATE TABLE IF NOT EXISTS ledgers (
    id TEXT PRIMARY KEY, since INTEGER NOT NULL, closed INTEGER NOT NULL DEFAULT 0)`,
];

// Environment is a row. removed_at is 0 while the environment exists.
export interface Environment {
  id: string;
  image: string;
  prepared: string;
  removed_at: number;
}

// kept is how long a removed environment stays, in milliseconds. Usage figures are compared for a week.
const kept = 10 * 24 * 3600 * 1000;

export class Environments {
  constructor(private readonly db: D1Database) {}

  // put adds or changes an environment. It returns false if the ledger is closed.
  async put(ledger: string, id: string, image: Image, now: number): Promise<boolean> {
    await prepare(this.db, schema);
    const [, , open] = await this.db.batch<{ closed: number }>([
      this.db.prepare(`INSERT OR IGNORE INTO ledgers (id, since) VALUES (?1, ?2)`).bind(ledger, now),
      this.db
        .prepare(`INSERT INTO environments (ledger, id, image, prepared)
          SELECT ?1, ?2, ?3, ?4 FROM ledgers WHERE id = ?1 AND closed = 0
          ON CONFLICT (ledger, id) DO UPDATE SET image = ?3, prepared = ?4, removed_at = NULL`)
        .bind(ledger, id, image.image, image.prepared),
      this.db.prepare(`SELECT closed FROM ledgers WHERE id = ?1`).bind(ledger),
    ]);
    return open?.results[0]?.closed === 0;
  }

  // list returns the environments of a ledger, including recently removed ones, and the time of the first; 0 if the
  // ledger never had one.
  async list(ledger: string): Promise<{ since: number; environments: Environment[] }> {
    await prepare(this.db, schema);
    const [ledgers, environments] = await this.db.batch([
      this.db.prepare(`SELECT since FROM ledgers WHERE id = ?`).bind(ledger),
      this.db
        .prepare(`SELECT id, image, prepared, coalesce(removed_at, 0) AS removed_at FROM environments
          WHERE ledger = ? ORDER BY id`)
        .bind(ledger),
    ]);
    const since = (ledgers?.results[0] as { since: number } | undefined)?.since ?? 0;
    return { since, environments: (environments?.results ?? []) as Environment[] };
  }

  // remove marks an environment as removed, and deletes rows that were marked long ago. The caller has checked that the
  // environment has no sandboxes.
  async remove(ledger: string, id: string, now: number): Promise<void> {
    await prepare(this.db, schema);
    await this.db.batch([
      this.db
        .prepare(`UPDATE environments SET removed_at = ?3 WHERE ledger = ?1 AND id = ?2 AND removed_at IS NULL`)
        .bind(ledger, id, now),
      this.db.prepare(`DELETE FROM environments WHERE ledger = ?1 AND removed_at < ?2`).bind(ledger, now - kept),
    ]);
  }

  // close closes a ledger that has neither environments nor sandboxes, so that this Worker can be deleted. It returns
  // whether the ledger is closed. A ledger that never had an environment gets its row, because another process may add
  // the first one now.
  async close(ledger: string, now: number): Promise<boolean> {
    await prepare(this.db, schema);
    await prepare(this.db, copySchema); // it has the table sandboxes
    const [, state] = await this.db.batch<{ closed: number }>([
      this.db
        .prepare(`INSERT INTO ledgers (id, since, closed) SELECT ?1, ?2, 1
          WHERE NOT EXISTS (SELECT 1 FROM environments WHERE ledger = ?1 AND removed_at IS NULL)
          AND NOT EXISTS (SELECT 1 FROM sandboxes WHERE ledger = ?1)
          ON CONFLICT (id) DO UPDATE SET closed = 1`)
        .bind(ledger, now),
      this.db.prepare(`SELECT closed FROM ledgers WHERE id = ?1`).bind(ledger),
    ]);
    return state?.results[0]?.closed === 1;
  }
}

// Image is the image of an environment.
export type Image = Pick<Environment, "image" | "prepared">;

export function parseImage(body: Uint8Array): Image {
  try {
    const { image, prepared } = JSON.parse(new TextDecoder().decode(body)) as Image;
    if (typeof image === "string" && typeof prepared === "string") return { image, prepared };
  } catch {
    // the error below says what is wrong
  }
  throw new Failure("invalid", "an environment must have an image and a prepared image, as strings");
}
