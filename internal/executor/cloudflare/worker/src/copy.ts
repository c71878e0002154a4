// A copy in D1 of the state of all Durable Objects. Durable Objects cannot be listed by name, and a request to one
// wakes it.

import { prepare } from "./tables";
import { writesTo } from "./writes";

export const schema = [
  // One row for each existing sandbox. view is its status, as its Durable Object returns it.
  `CREATE TABLE IF NOT EXISTS sandboxes (
    ledger TEXT NOT NULL, id TEXT NOT NULL, view TEXT NOT NULL, PRIMARY KEY (ledger, id)) WITHOUT ROWID`,
  // One row for each agent in an environment: its latest generation. Times are in milliseconds of Unix time.
  `CREATE TABLE IF NOT EXISTS sandbox_leases (
    id TEXT PRIMARY KEY,
    ledger TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    agent_did TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    environment_type TEXT NOT NULL,
    leased_at INTEGER NOT NULL,
    last_activity INTEGER NOT NULL,
    ttl_ms INTEGER NOT NULL,
    sleep_after TEXT NOT NULL DEFAULT '5m',
    expiry_conditions TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'expired', 'destroyed')),
    UNIQUE (agent_did, environment_id))`,
  `CREATE INDEX IF NOT EXISTS idx_leases_env ON sandbox_leases (environment_id)`,
  `CREATE INDEX IF NOT EXISTS idx_leases_status ON sandbox_leases (status)`,
];

export type LeaseStatus = "active" | "expired" | "destroyed";

// Lease is a row of sandbox_leases.
export interface Lease {
  id: string;
  generation: number;
  agent_did: string;
  environment_id: string;
  environment_type: string;
  leased_at: number;
  last_activity: number;
  ttl_ms: number;
  sleep_after: string;
  expiry_conditions: string;
  status: LeaseStatus;
}

// page is the maximum number of sandboxes in one answer: about half a megabyte.
const page = 500;

export class Copy {
  constructor(private readonly db: D1Database) {}

  // put writes a sandbox and its lease. If view is null, put deletes the sandbox's row. lease is null if D1 has it
  // already. A view with a smaller version than the one in D1 is late and changes nothing.
  async put(ledger: string, id: string, view: { version: number } | null, lease: Lease | null): Promise<void> {
    const row =
      view === null
        ? this.db.prepare(`DELETE FROM sandboxes WHERE ledger = ? AND id = ?`).bind(ledger, id)
        : this.db
            .prepare(
              `INSERT INTO sandboxes (ledger, id, view) VALUES (?, ?, ?)
               ON CONFLICT (ledger, id) DO UPDATE SET view = excluded.view
               WHERE excluded.view ->> '$.version' >= coalesce(sandboxes.view ->> '$.version', 0)`,
            )
            .bind(ledger, id, JSON.stringify(view));
    await writesTo(this.db, schema).put(lease === null ? [row] : [row, ...this.lease(ledger, id, lease)]);
  }

  // list returns the sandboxes of a ledger whose ids follow the given one, in the order of their ids.
  async list(ledger: string, after: string): Promise<{ sandboxes: { id: string; view: unknown }[]; more: boolean }> {
    await prepare(this.db, schema);
    const { results } = await this.db
      .prepare(`SELECT id, view FROM sandboxes WHERE ledger = ? AND id > ? ORDER BY id LIMIT ?`)
      .bind(ledger, after, page + 1)
      .all<{ id: string; view: string }>();
    const sandboxes = results.slice(0, page).map(({ id, view }) => ({ id, view: JSON.parse(view) as unknown }));
    return { sandboxes, more: results.length > page };
  }

  // one returns the id of a sandbox of an environment, null if there is none.
  async one(ledger: string, environment: string): Promise<string | null> {
    await prepare(this.db, schema);
    return await this.db
      .prepare(`SELECT id FROM sandboxes WHERE ledger = ? AND view ->> '$.settings.environment_id' = ? LIMIT 1`)
      .bind(ledger, environment)
      .first<string>("id");
  }

  // remove deletes the leases of an environment.
  async remove(ledger: string, environment: string): Promise<void> {
    await prepare(this.db, schema);
    await this.db.prepare(`DELETE FROM sandbox_leases WHERE ledger = ? AND environment_id = ?`).bind(ledger, environment).run();
  }

  // lease writes a lease, unless D1 has a later generation of the same ledger. D1 bills a row for each index that a
  // statement may change, even if the index stays the same. So the first statement writes only a use, which costs one
  // row, and the second writes everything else.
  private lease(ledger: string, sandbox: string, l: Lease): D1PreparedStatement[] {
    const values = [
      l.id, ledger, sandbox, l.generation, l.agent_did, l.environment_id, l.environment_type,
      l.leased_at, l.last_activity, l.ttl_ms, l.sleep_after, l.expiry_conditions, l.status,
    ];
    const use = `UPDATE sandbox_leases
         SET leased_at = ?8, last_activity = ?9, ttl_ms = ?10, sleep_after = ?11, expiry_conditions = ?12
         WHERE id = ?1 AND ledger = ?2 AND sandbox_id = ?3 AND generation = ?4 AND agent_did = ?5 AND environment_id = ?6
           AND environment_type = ?7 AND status = ?13
           AND (leased_at, last_activity, ttl_ms, sleep_after, expiry_conditions) IS NOT (?8, ?9, ?10, ?11, ?12)`;
    // An agent and its environment determine the id.
    const rest = `INSERT INTO sandbox_leases (id, ledger, sandbox_id, generation, agent_did, environment_id, environment_type, leased_at, last_activity, ttl_ms, sleep_after, expiry_conditions, status)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
         ON CONFLICT (agent_did, environment_id) DO UPDATE SET ledger = ?2, sandbox_id = ?3, generation = ?4, environment_type = ?7,
           leased_at = ?8, last_activity = ?9, ttl_ms = ?10, sleep_after = ?11, expiry_conditions = ?12, status = ?13
         WHERE sandbox_leases.ledger <> ?2 OR sandbox_leases.generation < ?4 OR sandbox_leases.generation = ?4
           AND (sandbox_leases.sandbox_id, sandbox_leases.environment_type, sandbox_leases.status) IS NOT (?3, ?7, ?13)`;
    return [use, rest].map((statement) => this.db.prepare(statement).bind(...values));
  }
}
