// The tables of a sandbox's Durable Object. The platform bills even empty ones, and a request may name any sandbox. So
// tables exist from the sandbox's creation until its records are purged.

export class Rows {
  private exist: boolean;

  constructor(
    private readonly storage: DurableObjectStorage,
    // make creates all tables, or upgrades those of an older Worker.
    private readonly make: (sql: SqlStorage) => void,
  ) {
    this.exist = storage.sql.exec(`SELECT 1 FROM sqlite_master WHERE name = 'sandbox'`).toArray().length > 0;
    if (this.exist) make(storage.sql);
  }

  // exec runs a statement. Without tables it reads and changes nothing.
  exec<T extends Record<string, SqlStorageValue>>(statement: string, ...values: unknown[]): SqlStorageCursor<T> {
    const { sql } = this.storage;
    return this.exist ? sql.exec<T>(statement, ...values) : sql.exec<T>(`SELECT 1 WHERE FALSE`);
  }

  create(): void {
    if (!this.exist) this.make(this.storage.sql);
    this.exist = true;
  }

  // drop deletes all tables, the alarm, and what the platform itself stores.
  async drop(): Promise<void> {
    this.exist = false;
    await this.storage.deleteAll();
  }
}
