// Restricted networks in D1: the rules of each environment, and the log of what its sandboxes tried to reach. Each row
// has its ledger and environment, so that several ledgers and environments may share a database.

import { Failure } from "./errors";
import type { Egress } from "./policy";
import { prepare, removeRows } from "./tables";

const schema = [
  // run and line are the position of the log's last line (sandbox.EgressPosition). egress is null until rules are set.
  `CREATE TABLE IF NOT EXISTS networks (
    ledger TEXT NOT NULL, environment TEXT NOT NULL, egress TEXT, run INTEGER NOT NULL, line INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (ledger, environment))`,
  // Each row is one batch of lines of a sandbox. last_line is the number of its last line.
  `CREATE TABLE IF NOT EXISTS egress_lines (
    ledger TEXT NOT NULL, environment TEXT NOT NULL, run INTEGER NOT NULL, last_line INTEGER NOT NULL,
    batch TEXT NOT NULL UNIQUE, records TEXT NOT NULL, PRIMARY KEY (ledger, environment, run, last_line))`,
];

// Line is one line of the log. Times are in milliseconds, sent and received in bytes.
export interface Line {
  kind: "opened" | "closed" | "dropped";
  at: number;
  sandbox: string;
  agent?: string;
  attempt?: string;
  protocol?: "http" | "tls";
  host?: string;
  port?: number;
  verdict?: "allowed" | "refused" | "failed";
  reason?: string;
  detail?: string;
  sent?: number;
  received?: number;
  duration_ms?: number;
  // count is the number of dropped lines.
  count?: number;
}

// PlacedLine is a line with its position in the log.
export type PlacedLine = Line & { run: number; line: number };

// kept is how many lines of an environment the log keeps. The ledger reads them every few seconds.
const kept = 100_000;

// page is the maximum number of rows in one answer, and pageSize that of their bytes: the client reads 4 MiB. The first
// row, of at most 1 MiB, is always part of the answer. maxLines is the maximum number of lines in a row.
const page = 20;
const pageSize = 1 << 20;
export const maxLines = 200;

export class Networks {
  constructor(private readonly db: D1Database) {}

  // put sets the rules of an environment.
  async put(ledger: string, environment: string, egress: Egress, now: number): Promise<void> {
    await prepare(this.db, schema);
    const rules = JSON.stringify(egress);
    await this.db
      .prepare(`INSERT INTO networks (ledger, environment, egress, run) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (ledger, environment) DO UPDATE SET egress = ?3`)
      .bind(ledger, environment, rules, now)
      .run();
  }

  // rules returns null for an environment without rules.
  async rules(ledger: string, environment: string): Promise<Egress | null> {
    await prepare(this.db, schema);
    const text = await this.db
      .prepare(`SELECT egress FROM networks WHERE ledger = ? AND environment = ?`)
      .bind(ledger, environment)
      .first<string | null>("egress");
    return text === null ? null : (JSON.parse(text) as Egress);
  }

  // list returns the environments of a ledger that have rules or a log.
  async list(ledger: string): Promise<string[]> {
    await prepare(this.db, schema);
    const { results } = await this.db
      .prepare(`SELECT environment FROM networks WHERE ledger = ? ORDER BY environment`)
      .bind(ledger)
      .all<{ environment: string }>();
    return results.map(({ environment }) => environment);
  }

  // append adds a batch of lines to the log. It is idempotent: a repeated batch is stored once.
  async append(ledger: string, environment: string, batch: string, lines: Line[], now: number): Promise<void> {
    await prepare(this.db, schema);
    const where = `ledger = ?1 AND environment = ?2`;
    await this.db.batch([
      this.db
        .prepare(`INSERT OR IGNORE INTO networks (ledger, environment, run) VALUES (?1, ?2, ?3)`)
        .bind(ledger, environment, now),
      this.db
        .prepare(`UPDATE networks SET line = line + ?3
          WHERE ${where} AND NOT EXISTS (SELECT 1 FROM egress_lines WHERE batch = ?4)`)
        .bind(ledger, environment, lines.length, batch),
      this.db
        .prepare(`INSERT OR IGNORE INTO egress_lines (ledger, environment, run, last_line, batch, records)
          SELECT ledger, environment, run, line, ?3, ?4 FROM networks WHERE ${where}`)
        .bind(ledger, environment, batch, JSON.stringify(lines)),
      this.db
        .prepare(`DELETE FROM egress_lines
          WHERE ${where} AND last_line <= (SELECT line FROM networks WHERE ${where}) - ?3`)
        .bind(ledger, environment, kept),
    ]);
  }

  // lines returns one page of the oldest lines after a position.
  async lines(ledger: string, environment: string, run: number, line: number): Promise<PlacedLine[]> {
    await prepare(this.db, schema);
    const { results } = await this.db
      .prepare(`SELECT run, last_line, records FROM egress_lines
        WHERE ledger = ?1 AND environment = ?2 AND (run > ?3 OR run = ?3 AND last_line > ?4)
        ORDER BY run, last_line LIMIT ?5`)
      .bind(ledger, environment, run, line, page)
      .all<{ run: number; last_line: number; records: string }>();
    let size = 0;
    const fits = ({ records }: { records: string }, i: number) => {
      size += utf8.encode(records).length;
      return size <= pageSize || i === 0;
    };
    return takeWhile(results, fits).flatMap((row) => {
      const all = JSON.parse(row.records) as Line[];
      const first = row.last_line - all.length + 1;
      return all.map((l, i) => ({ ...l, run: row.run, line: first + i })).filter((l) => row.run > run || l.line > line);
    });
  }

  // remove deletes the rules and the log of an environment.
  async remove(ledger: string, environment: string): Promise<void> {
    await prepare(this.db, schema);
    await removeRows(this.db, ["networks", "egress_lines"], ledger, environment);
  }
}

const utf8 = new TextEncoder();

// takeWhile returns the elements before the first for which holds is false.
function takeWhile<T>(all: T[], holds: (element: T, i: number) => boolean): T[] {
  const end = all.findIndex((element, i) => !holds(element, i));
  return end < 0 ? all : all.slice(0, end);
}

// parseEgress parses rules that the caller has validated (sandbox.Egress).
export function parseEgress(body: Uint8Array): Egress {
  try {
    const egress = JSON.parse(new TextDecoder().decode(body)) as Egress;
    const valid = ({ host, ports }: Egress["allow"][number]) =>
      typeof host === "string" && (ports === undefined || (Array.isArray(ports) && ports.every(Number.isInteger)));
    if (Array.isArray(egress.allow) && egress.allow.every(valid)) return { allow: egress.allow };
  } catch {
    // the error below says what is wrong
  }
  throw new Failure("invalid", "the rules must be JSON with a list of hosts and ports in allow");
}
