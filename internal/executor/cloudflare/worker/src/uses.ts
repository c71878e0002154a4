// When the sandbox was used, and what keeps it in use. Most of it is in memory while clients are connected: a row for each
// command would cost more than the command.

import type { Books, Operation } from "./channel";
import { cpuOf, type Result } from "./frames";
import type { Store } from "./store";

// cpuStep is how much CPU time is recorded at once, in microseconds; less waits for flush.
const cpuStep = 1_000_000;

export class Uses implements Books {
  // attended are the operations that end with their WebSocket, and when they must have ended.
  private readonly attended = new Map<Operation, number>();
  private usedAt = 0;
  private cpu = 0;
  private recordedCpu = 0;

  constructor(
    private readonly sql: SqlStorage,
    private readonly store: Store,
    private readonly now: () => number,
    // after is done once an operation has ended, before its caller hears of it.
    private readonly after: (result: Result) => Promise<void>,
    private readonly disconnected: () => Promise<void>,
  ) {}

  begin(op: Operation): void {
    if (op.quiet) return;
    this.usedAt = this.now();
    const until = this.usedAt + op.limit_ms;
    if (op.detached) this.sql.exec(`INSERT OR REPLACE INTO running (id, until, detached) VALUES (?, ?, 1)`, op.id, until);
    else this.attended.set(op, until);
  }

  async end(op: Operation, result: Result | null): Promise<void> {
    if (!op.quiet) {
      this.usedAt = this.now();
      this.attended.delete(op);
      if (op.detached && result !== null) this.store.endRun(op.id);
    }
    if (result === null) {
      // Its caller has gone. What it ran may have changed /data.
      await this.after({ exit_code: 0 });
      return;
    }
    this.cpu = Math.max(this.cpu, cpuOf(result));
    if (this.cpu - this.recordedCpu >= cpuStep) this.recordCpu();
    await this.after(result);
  }

  async idle(): Promise<void> {
    this.flush();
    await this.disconnected();
  }

  // detached are the commands that nobody waits for, as far as is known.
  detached(): string[] {
    return this.sql
      .exec<{ id: string }>(`SELECT id FROM running WHERE detached = 1`)
      .toArray()
      .map(({ id }) => id);
  }

  // ended notes that a detached command has ended.
  ended(id: string): void {
    if (this.store.endRun(id)) this.usedAt = this.now();
  }

  // busyUntil is when the last operation that runs must have ended; 0 when none runs.
  busyUntil(now: number): number {
    let until = this.store.busyUntil(now);
    for (const at of this.attended.values()) if (at > now) until = Math.max(until, at);
    return until;
  }

  // flush records what is in memory. It is called before anything is told or decided by what is recorded.
  flush(): void {
    this.recordCpu();
    const row = this.store.row();
    if (row !== null && this.usedAt > row.used_at) this.store.use(this.usedAt);
  }

  // began forgets what was used in the container before.
  began(): void {
    this.cpu = 0;
    this.recordedCpu = 0;
  }

  private recordCpu(): void {
    if (this.cpu === this.recordedCpu) return;
    this.store.used(this.cpu);
    this.recordedCpu = this.cpu;
  }
}
