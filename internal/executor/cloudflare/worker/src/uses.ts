// Records when the sandbox was used, and what keeps it in use. While clients are connected, most of this is only in
// memory: a row for each command would cost more than the command.

import type { Books, Operation } from "./channel";
import { cpuOf, type Result } from "./frames";
import type { Store } from "./store";

// cpuStep is the smallest increase of CPU time that is recorded immediately, in microseconds. A smaller one waits for
// flush.
const cpuStep = 1_000_000;

// redialLimit is how long clients may take to dial again after their object has left memory, in milliseconds.
const redialLimit = 30_000;

export class Uses implements Books {
  // attended has the operations that end with their WebSocket, and when each must have ended.
  private readonly attended = new Map<Operation, number>();
  private usedAt = 0;
  // cpu is the last reported CPU time of the container, in microseconds. cpuAt is when it was reported.
  private cpu = 0;
  private cpuAt = 0;
  private recordedCpu = 0;
  // expectedUntil is when this object stops waiting for clients to dial again. Their operations may still run.
  private readonly expectedUntil: number;

  constructor(
    private readonly store: Store,
    private readonly now: () => number,
    // after runs once an operation has ended, before its caller gets the result.
    private readonly after: (result: Result) => Promise<void>,
    private readonly disconnected: () => Promise<void>,
  ) {
    this.expectedUntil = store.disconnect() ? now() + redialLimit : 0;
  }

  connected(): void {
    this.store.connect();
  }

  begin(op: Operation): void {
    if (op.quiet) return;
    this.usedAt = this.now();
    const until = this.usedAt + op.limit_ms;
    if (op.detached) this.store.startRun(op.id, until);
    else this.attended.set(op, until);
  }

  async end(op: Operation, result: Result | null): Promise<void> {
    if (!op.quiet) {
      this.usedAt = this.now();
      this.attended.delete(op);
      if (op.detached && result !== null) this.store.endRun(op.id);
    }
    if (result === null) {
      // The caller is gone. The operation may have changed /data.
      await this.after({ exit_code: 0 });
      return;
    }
    if (cpuOf(result) > this.cpu) [this.cpu, this.cpuAt] = [cpuOf(result), this.now()];
    if (this.cpu - this.recordedCpu >= cpuStep) this.recordCpu();
    await this.after(result);
  }

  async idle(): Promise<void> {
    this.store.disconnect();
    await this.disconnected();
  }

  // ended records that a detached command has ended.
  ended(id: string): void {
    const until = this.store.endRun(id);
    if (until !== null) this.usedAt = Math.max(this.usedAt, Math.min(until, this.now()));
  }

  // busyUntil is when the last running operation must have ended; 0 if none runs.
  busyUntil(now: number): number {
    let until = Math.max(this.store.busyUntil(now), this.expectedUntil > now ? this.expectedUntil : 0);
    for (const at of this.attended.values()) if (at > now) until = Math.max(until, at);
    return until;
  }

  // flush records what is in memory. Call it before any report or decision that uses the records.
  flush(): void {
    this.recordCpu();
    const row = this.store.row();
    if (row !== null && this.usedAt > row.used_at) this.store.use(this.usedAt);
  }

  // began resets the CPU time for a new container.
  began(): void {
    this.cpu = 0;
    this.recordedCpu = 0;
  }

  private recordCpu(): void {
    if (this.cpu === this.recordedCpu) return;
    this.store.used(this.cpu, this.cpuAt);
    this.recordedCpu = this.cpu;
  }
}
