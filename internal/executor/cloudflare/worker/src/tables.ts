// Tables of D1. Each row has its ledger and environment, so that ledgers and environments may share a database.

// prepared holds, for each database, the schemas that exist in it.
const prepared = new WeakMap<D1Database, Set<readonly string[]>>();

// prepare creates the tables of a schema, unless it has already done so.
export async function prepare(db: D1Database, schema: readonly string[]): Promise<void> {
  const known = prepared.get(db) ?? new Set();
  prepared.set(db, known);
  if (known.has(schema)) return;
  await db.batch(schema.map((statement) => db.prepare(statement)));
  known.add(schema);
}

// removeRows deletes the rows of an environment from tables.
export async function removeRows(db: D1Database, tables: string[], ledger: string, environment: string): Promise<void> {
  const from = (table: string) => `DELETE FROM ${table} WHERE ledger = ? AND environment = ?`;
  await db.batch(tables.map((table) => db.prepare(from(table)).bind(ledger, environment)));
}
