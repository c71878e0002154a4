// The state that a Durable Object keeps when it leaves memory: the sandbox's settings, its periods, its last use, and
// its running commands. Every method is synchronous, so no method sees another's half-finished change.

import type { Rows } from "./rows";
import { deadline, type Settings, withoutSecrets } from "./settings";

// Cause says why a container stopped.
export type Cause = "sleep" | "idle" | "ttl" | "deadline" | "kill" | "crash" | "start_failed";

// Period is one run of the container. incarnation counts the starts.
export interface Period {
  incarnation: number;
  started_at: number;
  stopped_at: number | null;
  cause: Cause | null;
  exit_code: number | null; // null also if it is unknown
  // cpu_us is the CPU time that the guest reported last, in microseconds.
  cpu_us: number;
  // alive_at is when the container was last known to run; 0 if that was not recorded.
  alive_at: number;
  // memory_bytes and pids are the values that the guest reported at read_at, with cpu_us. read_at is 0 before the first
  // reading.
  memory_bytes: number;
  pids: number;
  read_at: number;
  // size is the variable SIZE at the start; "" if the container has the size of the sandbox's creation.
  size: string;
}

// Usage is what a container uses, as its guest reports it.
export interface Usage {
  cpu_ns: number;
  memory_bytes: number;
  pids: number;
}

// KeptDisk is the state of a disk that outlives a sleep.
export interface KeptDisk {
  // snapshot is the id of the snapshot that the next start restores; "" if there is none.
  snapshot: string;
  // image is the image of the snapshot: a reference with a digest, or "" for the application's image.
  image: string;
  // saved_at is the time of the snapshot that the next start restores, or that the last start restored; 0 if there is
  // none.
  saved_at: number;
  // lost is why the disk of the last container is lost; "" if it is not.
  lost: string;
}

// Told is what this Worker reports about a sandbox, even after its kill.
export interface Told {
  // name is the name of the Durable Object: the ledger's id, a slash, the sandbox's id.
  name: string;
  settings: Settings;
  created_at: number;
  used_at: number;
}

export interface Row extends Told {
  // ready: it has accepted commands once.
  ready: boolean;
}

// retention is how long the records of a sandbox are kept after it has ended for good, in milliseconds.
const retention = 7 * 24 * 3600_000;

// makeTables creates the tables of a Store, or upgrades those of an older Worker.
export function makeTables(sql: SqlStorage): void {
  sql.exec(`CREATE TABLE IF NOT EXISTS sandbox (
    one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL, settings TEXT NOT NULL, created_at INTEGER NOT NULL, used_at INTEGER NOT NULL, ready INTEGER NOT NULL DEFAULT 0,
    saved TEXT NOT NULL DEFAULT 'empty', saved_at INTEGER NOT NULL DEFAULT 0,
    restored INTEGER NOT NULL DEFAULT 0)`);
  sql.exec(`CREATE TABLE IF NOT EXISTS periods (
    incarnation INTEGER PRIMARY KEY, started_at INTEGER NOT NULL, stopped_at INTEGER, cause TEXT, exit_code INTEGER, cpu_us INTEGER NOT NULL DEFAULT 0,
    alive_at INTEGER NOT NULL DEFAULT 0, memory_bytes INTEGER NOT NULL DEFAULT 0, pids INTEGER NOT NULL DEFAULT 0, read_at INTEGER NOT NULL DEFAULT 0,
    size TEXT NOT NULL DEFAULT '')`);
  for (const column of ["alive_at", "memory_bytes", "pids", "read_at"]) addColumn(sql, "periods", column, "INTEGER NOT NULL DEFAULT 0");
  addColumn(sql, "periods", "size", "TEXT NOT NULL DEFAULT ''");
  // restored is the last period whose container has got its /data. Those of an older Worker count.
  const added = addColumn(sql, "sandbox", "restored", "INTEGER NOT NULL DEFAULT 0");
  if (added) sql.exec(`UPDATE sandbox SET restored = coalesce((SELECT max(incarnation) FROM periods), 0)`);
  sql.exec(`CREATE TABLE IF NOT EXISTS running (id TEXT PRIMARY KEY, until INTEGER NOT NULL, detached INTEGER NOT NULL) WITHOUT ROWID`);
  sql.exec(`CREATE TABLE IF NOT EXISTS killed (one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL, settings TEXT NOT NULL, created_at INTEGER NOT NULL, used_at INTEGER NOT NULL, purge_at INTEGER NOT NULL)`);
  // disk has a row if the sandbox's disk outlives its sleep.
  sql.exec(`CREATE TABLE IF NOT EXISTS disk (one INTEGER PRIMARY KEY CHECK (one = 1), snapshot TEXT NOT NULL, image TEXT NOT NULL, saved_at INTEGER NOT NULL, lost TEXT NOT NULL)`);
  // owes is 1 while the copy in D1 is older than this state, and until the saved /data of a killed sandbox is deleted.
  // version grows with the state.
  sql.exec(`CREATE TABLE IF NOT EXISTS owed (one INTEGER PRIMARY KEY CHECK (one = 1), owes INTEGER NOT NULL DEFAULT 1, version INTEGER NOT NULL DEFAULT 0)`);
  addColumn(sql, "owed", "owes", "INTEGER NOT NULL DEFAULT 1");
  addColumn(sql, "owed", "version", "INTEGER NOT NULL DEFAULT 0");
}

export class Store {
  // counted: the version has grown since it was last read.
  private counted = false;

  constructor(private readonly sql: Rows) {}

  // row returns null if the sandbox does not exist.
  row(): Row | null {
    const r = this.sql
      .exec<{ name: string; settings: string; created_at: number; used_at: number; ready: number }>(`SELECT name, settings, created_at, used_at, ready FROM sandbox`)
      .toArray()[0];
    return r === undefined ? null : { ...r, settings: JSON.parse(r.settings) as Settings, ready: r.ready === 1 };
  }

  create(name: string, settings: Settings, now: number): void {
    this.sql.create();
    this.sql.exec(`DELETE FROM killed`);
    this.sql.exec(`INSERT INTO sandbox (one, name, settings, created_at, used_at) VALUES (1, ?, ?, ?, ?)`, name, JSON.stringify(settings), now, now);
    if (settings.keep_disk) this.sql.exec(`INSERT INTO disk (one, snapshot, image, saved_at, lost) VALUES (1, '', '', 0, '')`);
  }

  // disk returns null if the sandbox's disk does not outlive its sleep. Then the next three methods do nothing.
  disk(): KeptDisk | null {
    return this.sql.exec<{ [K in keyof KeptDisk]: KeptDisk[K] }>(`SELECT snapshot, image, saved_at, lost FROM disk`).toArray()[0] ?? null;
  }

  // keepDisk records a snapshot for the next start.
  keepDisk(snapshot: string, image: string, at: number): void {
    this.sql.exec(`UPDATE disk SET snapshot = ?, image = ?, saved_at = ?, lost = ''`, snapshot, image, at);
  }

  // useDisk records that a start has restored the snapshot.
  useDisk(): void {
    this.sql.exec(`UPDATE disk SET snapshot = ''`);
  }

  // loseDisk records that the next start begins with the disk of the image, and why.
  loseDisk(why: string): void {
    this.sql.exec(`UPDATE disk SET snapshot = '', saved_at = 0, lost = ?`, why);
  }

  setSettings(settings: Settings): void {
    this.sql.exec(`UPDATE sandbox SET settings = ?`, JSON.stringify(settings));
  }

  // killed returns the record of the killed sandbox; null if none was killed.
  killed(): Told | null {
    const r = this.sql
      .exec<{ name: string; settings: string; created_at: number; used_at: number }>(`SELECT name, settings, created_at, used_at FROM killed`)
      .toArray()[0];
    return r === undefined ? null : { ...r, settings: JSON.parse(r.settings) as Settings };
  }

  // saved is the fingerprint of the saved /data; "" if it is unknown.
  saved(): string {
    return this.sql.exec<{ saved: string }>(`SELECT saved FROM sandbox`).toArray()[0]?.saved ?? "empty";
  }

  savedAt(): number {
    return this.sql.exec<{ saved_at: number }>(`SELECT saved_at FROM sandbox`).toArray()[0]?.saved_at ?? 0;
  }

  setSaved(fingerprint: string, at: number): void {
    this.sql.exec(`UPDATE sandbox SET saved = ?, saved_at = ?`, fingerprint, at);
  }

  // owe records that the copy does not have this state yet. Changes before the next write share one version.
  owe(): void {
    if (this.counted && this.owes()) return;
    this.sql.exec(`INSERT INTO owed (one, version) VALUES (1, 1) ON CONFLICT (one) DO UPDATE SET owes = 1, version = version + 1`);
    this.counted = true;
  }

  owes(): boolean {
    return this.sql.exec(`SELECT one FROM owed WHERE owes = 1`).toArray().length > 0;
  }

  // version returns the version of this state, for the copy. A later change has another one.
  version(): number {
    this.counted = false;
    return this.sql.exec<{ version: number }>(`SELECT version FROM owed`).toArray()[0]?.version ?? 0;
  }

  // settle records that the copy has a version. A change since then is still owed.
  settle(version: number): void {
    this.sql.exec(`UPDATE owed SET owes = 0 WHERE version = ?`, version);
  }

  // forgetSecrets removes the secrets of a sandbox that never starts again.
  forgetSecrets(): void {
    const row = this.row();
    if (row !== null && (row.settings.config !== "" || Object.keys(row.settings.env).length > 0)) this.setSettings(withoutSecrets(row.settings));
  }

  setReady(): void {
    this.sql.exec(`UPDATE sandbox SET ready = 1`);
  }

  // remove deletes the sandbox and its secrets. Its periods stay until purgeAt.
  remove(now: number): void {
    const row = this.row();
    if (row === null) return;
    this.sql.exec(
      `INSERT OR REPLACE INTO killed (one, name, settings, created_at, used_at, purge_at) SELECT 1, name, ?, created_at, used_at, ? FROM sandbox`,
      JSON.stringify(withoutSecrets(row.settings)), now + retention,
    );
    this.sql.exec(`DELETE FROM sandbox`);
    this.sql.exec(`DELETE FROM running`);
    this.sql.exec(`DELETE FROM disk`);
  }

  // purgeAt is when all records may be deleted; null if there are none.
  purgeAt(): number | null {
    const row = this.row();
    if (row !== null) return deadline(row.settings) + retention;
    return this.sql.exec<{ purge_at: number }>(`SELECT purge_at FROM killed`).toArray()[0]?.purge_at ?? null;
  }

  use(now: number): void {
    this.sql.exec(`UPDATE sandbox SET used_at = ?`, now);
  }

  // started records that the container of the last period has got its /data, and a use of it.
  started(now: number): void {
    this.sql.exec(`UPDATE sandbox SET used_at = ?, restored = (SELECT max(incarnation) FROM periods)`, now);
  }

  // restored: the container of the last period has got its /data.
  restored(): boolean {
    return this.sql.exec(`SELECT one FROM sandbox WHERE restored = (SELECT max(incarnation) FROM periods)`).toArray().length > 0;
  }

  periods(): Period[] {
    return this.sql.exec<{ [K in keyof Period]: Period[K] }>(`SELECT * FROM periods ORDER BY incarnation`).toArray();
  }

  lastPeriod(): Period | null {
    return this.sql.exec<{ [K in keyof Period]: Period[K] }>(`SELECT * FROM periods ORDER BY incarnation DESC LIMIT 1`).toArray()[0] ?? null;
  }

  // open: the end of the last period is not recorded. Its container may have ended.
  get open(): boolean {
    return this.lastPeriod()?.stopped_at === null;
  }

  // begin records a start and returns its number.
  begin(now: number, size: string): number {
    const incarnation = (this.lastPeriod()?.incarnation ?? 0) + 1;
    this.sql.exec(`INSERT INTO periods (incarnation, started_at, size) VALUES (?, ?, ?)`, incarnation, now, size);
    return incarnation;
  }

  // end records a stop, and that the copy does not have it yet. The first record counts: Box.stop and Box.notice may
  // both report one stop. Only a sleep keeps the disk. A failed start does not change it.
  end(incarnation: number, now: number, cause: Cause, exitCode: number | null): void {
    const { rowsWritten } = this.sql.exec(`UPDATE periods SET stopped_at = ?, cause = ?, exit_code = ? WHERE incarnation = ? AND stopped_at IS NULL`, now, cause, exitCode, incarnation);
    if (rowsWritten > 0 && !keepsDisk.includes(cause)) this.loseDisk(`its container ended without a sleep: ${cause}`);
    this.sql.exec(`DELETE FROM running`);
    this.owe();
  }

  // used records the CPU time of the current period, in microseconds, and that the container is alive.
  used(cpu: number, now: number): void {
    this.sql.exec(`UPDATE periods SET cpu_us = max(cpu_us, ?), alive_at = max(alive_at, ?) WHERE stopped_at IS NULL`, cpu, now);
  }

  // read records a reading of a period that still runs, and that the container is alive.
  read(incarnation: number, usage: Usage, now: number): void {
    this.sql.exec(
      `UPDATE periods SET cpu_us = max(cpu_us, ?), memory_bytes = ?, pids = ?, read_at = ?, alive_at = max(alive_at, ?) WHERE incarnation = ? AND stopped_at IS NULL`,
      Math.floor(usage.cpu_ns / 1000), usage.memory_bytes, usage.pids, now, now, incarnation,
    );
  }

  // alive records that the container is alive.
  alive(now: number): void {
    this.sql.exec(`UPDATE periods SET alive_at = max(alive_at, ?) WHERE stopped_at IS NULL`, now);
  }

  // startRun records a detached command. It keeps the sandbox in use until it ends, or until the given time.
  startRun(id: string, until: number): void {
    this.sql.exec(`INSERT OR REPLACE INTO running (id, until, detached) VALUES (?, ?, 1)`, id, until);
  }

  // endRun records the end of a detached command, and returns the latest time at which it could end; null if it was not
  // running.
  endRun(id: string): number | null {
    return this.sql.exec<{ until: number }>(`DELETE FROM running WHERE id = ? RETURNING until`, id).toArray()[0]?.until ?? null;
  }

  // runs returns the ids of the detached commands without a recorded end.
  runs(): string[] {
    return this.sql
      .exec<{ id: string }>(`SELECT id FROM running WHERE detached = 1`)
      .toArray()
      .map(({ id }) => id);
  }

  // connect records that clients are connected.
  connect(): void {
    this.sql.exec(`INSERT OR IGNORE INTO running (id, until, detached) VALUES ('', 0, 0)`);
  }

  // disconnect records that no client is connected, and reports whether one was.
  disconnect(): boolean {
    return this.sql.exec(`DELETE FROM running WHERE detached = 0`).rowsWritten > 0;
  }

  // busyUntil is when the last detached command must have ended; 0 if none runs.
  busyUntil(now: number): number {
    return this.sql.exec<{ until: number }>(`SELECT coalesce(max(until), 0) AS until FROM running WHERE detached = 1 AND until > ?`, now).toArray()[0]?.until ?? 0;
  }
}

// keepsDisk are the causes after which a snapshot stays for the next start.
const keepsDisk: readonly Cause[] = ["sleep", "idle", "start_failed"];

// addColumn upgrades a table that an older Worker created, and reports whether it did.
function addColumn(sql: SqlStorage, table: string, column: string, type: string): boolean {
  const has = sql.exec<{ name: string }>(`PRAGMA table_info(${table})`).toArray();
  if (has.some(({ name }) => name === column)) return false;
  sql.exec(`ALTER TABLE ${table} ADD COLUMN ${column} ${type}`);
  return true;
}
