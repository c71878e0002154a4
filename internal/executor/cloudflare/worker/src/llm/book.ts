// The journal of LLM calls in D1, with their usage and limits. One D1 transaction checks all limits and records the
// call. So racing sandboxes cannot exceed a limit, and no call is sent without its record. The ledger reads the
// journal. On Docker, internal/gateway/llm/book.go does the same.

import { prepare, removeRows } from "../tables";
import { type Tokens, totalOf } from "./price";
import { type LLMSettings, type Route, type Use } from "./settings";
import { seal, unseal } from "./seal";

const schema = [
  // sealed has the settings, encrypted; digest identifies them. run and line are the position of the journal's last
  // line. read_line is the last line that the ledger has.
  `CREATE TABLE IF NOT EXISTS llm (
    ledger TEXT NOT NULL, environment TEXT NOT NULL, digest TEXT NOT NULL, sealed TEXT NOT NULL, run INTEGER NOT NULL,
    line INTEGER NOT NULL DEFAULT 0, read_line INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (ledger, environment))`,
  // Each row is a call in its latest state: the end of a call moves it to a new line. usd and tokens count towards
  // limits.
  `CREATE TABLE IF NOT EXISTS llm_calls (
    id TEXT PRIMARY KEY, ledger TEXT NOT NULL, environment TEXT NOT NULL, sandbox TEXT NOT NULL, route TEXT NOT NULL,
    month TEXT NOT NULL, running INTEGER NOT NULL, usd INTEGER NOT NULL, tokens INTEGER NOT NULL, line INTEGER NOT NULL,
    record TEXT NOT NULL) WITHOUT ROWID`,
  `CREATE INDEX IF NOT EXISTS llm_lines ON llm_calls (ledger, environment, line)`,
  `CREATE INDEX IF NOT EXISTS llm_running ON llm_calls (ledger, environment) WHERE running = 1`,
  // Each row is what the ended calls of a sandbox (kind sandbox) or month (kind month) used on a route.
  `CREATE TABLE IF NOT EXISTS llm_sums (
    ledger TEXT NOT NULL, environment TEXT NOT NULL, kind TEXT NOT NULL, of TEXT NOT NULL, route TEXT NOT NULL,
    usd INTEGER NOT NULL, requests INTEGER NOT NULL, tokens INTEGER NOT NULL,
    PRIMARY KEY (ledger, environment, kind, of, route)) WITHOUT ROWID`,
];

export type Outcome = "running" | "completed" | "rejected" | "unsent" | "interrupted";

// Call is the record of one call (sandbox.LLMCall). Times are in milliseconds, 0 without one.
export interface Call {
  id: string;
  environment_id: string;
  lease_id: string;
  generation: number;
  sandbox_id: string;
  agent_did: string;
  route: string;
  model: string;
  session: string;
  started_at: number;
  ended_at: number;
  outcome: Outcome;
  status: number;
  tokens: Tokens;
  cost: number;
  unknown: boolean;
}

// Page holds the oldest lines of a journal after a position. running lists the sandboxes with running calls.
export interface Page {
  digest: string;
  lines: { run: number; line: number; call: Call }[];
  running: string[];
}

// Total is what calls used, or reserve, for a limit.
export type Total = Use & { scope: "lease" | "month" | "budget"; reserved: number };

// pageLines is the number of lines in a page. maxUnread is how many lines may wait for the ledger before calls are
// refused.
const pageLines = 500;
const maxUnread = 200_000;

// limited selects what counts towards the limits of a call: the sums of ended calls, and running calls with what they
// reserve.
const limited = `scopes (scope) AS (VALUES ('lease'), ('month'), ('budget')),
  total (scope, reserved, usd, requests, tokens) AS (
    SELECT scope, 0, usd, requests, tokens FROM llm_sums JOIN scopes ON CASE scope
      WHEN 'lease' THEN kind = 'sandbox' AND of = ?3 AND route = ?4
      WHEN 'month' THEN kind = 'month' AND of = ?5 AND route = ?4
      ELSE kind = 'month' AND of >= ?6 END
    WHERE ledger = ?1 AND environment = ?2
    UNION ALL
    SELECT scope, 1, usd, 1, tokens FROM llm_calls JOIN scopes ON CASE scope
      WHEN 'lease' THEN sandbox = ?3 AND route = ?4
      WHEN 'month' THEN month = ?5 AND route = ?4
      ELSE TRUE END
    WHERE ledger = ?1 AND environment = ?2 AND running = 1)`;

export class Book {
  constructor(private readonly db: D1Database) {}

  // put sets the settings of an environment. It raises the sums of the month to what the ledger has recorded, because a
  // new database has none.
  async put(ledger: string, environment: string, digest: string, s: LLMSettings, keys: string[], now: number): Promise<void> {
    await prepare(this.db, schema);
    const sealed = await seal(keys[0] ?? "", `${ledger}/${environment}`, JSON.stringify(s));
    const raise = Object.entries(s.recorded).map(([route, { usd, requests, tokens }]) =>
      this.db
        .prepare(`INSERT INTO llm_sums (ledger, environment, kind, of, route, usd, requests, tokens)
          SELECT ?1, ?2, 'month', ?3, ?4, max(?5 - coalesce(sum(usd), 0), 0), max(?6 - count(*), 0),
            max(?7 - coalesce(sum(tokens), 0), 0)
          FROM llm_calls WHERE ledger = ?1 AND environment = ?2 AND running = 1 AND month = ?3 AND route = ?4
          ON CONFLICT DO UPDATE SET usd = max(usd, excluded.usd), requests = max(requests, excluded.requests),
            tokens = max(tokens, excluded.tokens)
          WHERE usd < excluded.usd OR requests < excluded.requests OR tokens < excluded.tokens`)
        .bind(ledger, environment, s.month, route, usd, requests, tokens),
    );
    await this.db.batch([
      this.db
        .prepare(`INSERT INTO llm (ledger, environment, digest, sealed, run) VALUES (?1, ?2, ?3, ?4, ?5)
          ON CONFLICT (ledger, environment) DO UPDATE SET digest = ?3, sealed = ?4`)
        .bind(ledger, environment, digest, sealed, now),
      ...raise,
      this.db
        .prepare(`DELETE FROM llm_sums WHERE ledger = ?1 AND environment = ?2 AND kind = 'month' AND of < ?3`)
        .bind(ledger, environment, [monthBefore(now), s.month].sort()[0]),
    ]);
  }

  // settings returns null before put.
  async settings(ledger: string, environment: string, keys: string[]): Promise<LLMSettings | null> {
    await prepare(this.db, schema);
    const sealed = await this.db
      .prepare(`SELECT sealed FROM llm WHERE ledger = ? AND environment = ?`)
      .bind(ledger, environment)
      .first<string | null>("sealed");
    const text = sealed === null ? null : await unseal(keys, `${ledger}/${environment}`, sealed);
    return text === null ? null : (JSON.parse(text) as LLMSettings);
  }

  // admit records the beginning of a call and returns null. If a limit is reached, it returns the totals instead. If
  // too many lines wait for the ledger, it returns "full". reserved is the number of tokens that the call can use.
  async admit(ledger: string, call: Call, reserved: number, route: Route, s: LLMSettings): Promise<Total[] | "full" | null> {
    const month = monthOf(call.started_at);
    const where = [ledger, call.environment_id, call.sandbox_id, call.route, month, [s.month, month].sort()[0] ?? month];
    const limits = [route.lease_limits, route.monthly_limits].flatMap((l) => [l.usd || null, l.requests || null, l.tokens || null]);
    const values = [call.id, call.cost, reserved, JSON.stringify(call), maxUnread];
    const [, , admitted, totals] = await this.db.batch<Record<string, unknown>>([
      this.db
        .prepare(`WITH ${limited}, most (scope, usd, requests, tokens) AS (
            VALUES ('lease', ?7, ?8, ?9), ('month', ?10, ?11, ?12), ('budget', ?13, NULL, NULL)),
          reached AS (SELECT 1 FROM most JOIN (
            SELECT scope, sum(usd) AS usd, sum(requests) AS requests, sum(tokens) AS tokens FROM total GROUP BY scope
          ) AS used USING (scope)
            WHERE used.usd >= most.usd OR used.requests >= most.requests OR used.tokens >= most.tokens)
          INSERT INTO llm_calls (id, ledger, environment, sandbox, route, month, running, usd, tokens, line, record)
          SELECT ?14, ?1, ?2, ?3, ?4, ?5, 1, ?15, ?16, line + 1, ?17 FROM llm
          WHERE ledger = ?1 AND environment = ?2 AND line - read_line < ?18 AND NOT EXISTS (SELECT 1 FROM reached)`)
        .bind(...where, ...limits, s.cap, ...values),
      this.db
        .prepare(`UPDATE llm SET line = line + 1
          WHERE ledger = ?1 AND environment = ?2 AND EXISTS (SELECT 1 FROM llm_calls WHERE id = ?3)`)
        .bind(ledger, call.environment_id, call.id),
      this.db
        .prepare(`SELECT EXISTS (SELECT 1 FROM llm_calls WHERE id = ?3) AS admitted, line - read_line AS unread FROM llm
          WHERE ledger = ?1 AND environment = ?2`)
        .bind(ledger, call.environment_id, call.id),
      this.db
        .prepare(`WITH ${limited} SELECT scope, reserved, sum(usd) AS usd, sum(requests) AS requests,
            sum(tokens) AS tokens FROM total GROUP BY scope, reserved`)
        .bind(...where),
    ]);
    const said = admitted?.results[0];
    if (said?.admitted === 1) return null;
    return Number(said?.unread) >= maxUnread ? "full" : ((totals?.results ?? []) as unknown as Total[]);
  }

  // end records the end of a running call. A repetition changes nothing. counted is the number of tokens that count
  // towards limits.
  async end(ledger: string, call: Call, counted = totalOf(call.tokens)): Promise<void> {
    const { id, environment_id } = call;
    const running = `EXISTS (SELECT 1 FROM llm_calls WHERE id = ?1 AND running = 1)`;
    const add = (kind: "month" | "sandbox") =>
      this.db
        .prepare(`INSERT INTO llm_sums (ledger, environment, kind, of, route, usd, requests, tokens)
          SELECT ledger, environment, '${kind}', ${kind}, route, ?2, 1, ?3 FROM llm_calls WHERE id = ?1 AND running = 1
          ON CONFLICT DO UPDATE SET usd = usd + ?2, requests = requests + 1, tokens = tokens + ?3`)
        .bind(id, call.cost, counted);
    await this.db.batch([
      add("month"),
      add("sandbox"),
      this.db
        .prepare(`UPDATE llm SET line = line + 1 WHERE ledger = ?2 AND environment = ?3 AND ${running}`)
        .bind(id, ledger, environment_id),
      this.db
        .prepare(`UPDATE llm_calls SET running = 0, usd = ?2, tokens = ?3, record = ?4,
            line = (SELECT line FROM llm WHERE llm.ledger = llm_calls.ledger AND llm.environment = llm_calls.environment)
          WHERE id = ?1 AND running = 1`)
        .bind(id, call.cost, counted, JSON.stringify(call)),
    ]);
  }

  // running returns the calls of a sandbox that the journal has as running, with the tokens that they reserve.
  async running(ledger: string, environment: string, sandbox: string): Promise<{ call: Call; reserved: number }[]> {
    await prepare(this.db, schema);
    const { results } = await this.db
      .prepare(`SELECT record, tokens FROM llm_calls
        WHERE ledger = ? AND environment = ? AND running = 1 AND sandbox = ?`)
      .bind(ledger, environment, sandbox)
      .all<{ record: string; tokens: number }>();
    return results.map(({ record, tokens }) => ({ call: JSON.parse(record) as Call, reserved: tokens }));
  }

  // forget drops the sums of a sandbox that has ended for good.
  async forget(ledger: string, environment: string, sandbox: string): Promise<void> {
    await this.db
      .prepare(`DELETE FROM llm_sums WHERE ledger = ? AND environment = ? AND kind = 'sandbox' AND of = ?`)
      .bind(ledger, environment, sandbox)
      .run();
  }

  // page returns the oldest lines after a position. The ledger has recorded all lines up to there, so page deletes
  // those of ended calls. A position that the journal has not reached belongs to another journal, so this one begins a
  // new run.
  async page(ledger: string, environment: string, run: number, line: number): Promise<Page> {
    await prepare(this.db, schema);
    const where = `ledger = ?1 AND environment = ?2`;
    const at = [ledger, environment, run, line];
    const all = await this.db.batch<Record<string, unknown>>([
      this.db
        .prepare(`UPDATE llm SET run = ?3 + 1, read_line = 0 WHERE ${where} AND (run < ?3 OR run = ?3 AND line < ?4)`)
        .bind(...at),
      this.db.prepare(`UPDATE llm SET read_line = ?4 WHERE ${where} AND run = ?3 AND read_line < ?4`).bind(...at),
      this.db
        .prepare(`DELETE FROM llm_calls WHERE ${where} AND running = 0 AND line <= ?4
          AND EXISTS (SELECT 1 FROM llm WHERE ${where} AND run = ?3)`)
        .bind(...at),
      this.db.prepare(`SELECT digest, run FROM llm WHERE ${where}`).bind(ledger, environment),
      this.db
        .prepare(`SELECT line, record FROM llm_calls WHERE ${where}
          AND line > coalesce((SELECT ?4 FROM llm WHERE ${where} AND run = ?3), 0) ORDER BY line LIMIT ?5`)
        .bind(...at, pageLines),
      this.db
        .prepare(`SELECT DISTINCT sandbox FROM llm_calls WHERE ${where} AND running = 1`)
        .bind(ledger, environment),
    ]);
    const [, , , journal, lines, running] = all.map(({ results }) => results);
    const { digest = "", run: current = 0 } = (journal?.[0] ?? {}) as { digest?: string; run?: number };
    return {
      digest,
      lines: (lines as { line: number; record: string }[]).map((l) => ({ run: current, line: l.line, call: JSON.parse(l.record) as Call })),
      running: (running as { sandbox: string }[]).map(({ sandbox }) => sandbox),
    };
  }

  // remove deletes the settings, the journal and the sums of an environment.
  async remove(ledger: string, environment: string): Promise<void> {
    await prepare(this.db, schema);
    await removeRows(this.db, ["llm", "llm_calls", "llm_sums"], ledger, environment);
  }
}

// monthOf returns the month of a time in UTC, such as 2026-11.
export function monthOf(at: number): string {
  return new Date(at).toISOString().slice(0, 7);
}

// monthBefore returns the oldest month whose calls may still run.
function monthBefore(now: number): string {
  return monthOf(now - 35 * 24 * 3600_000);
}
