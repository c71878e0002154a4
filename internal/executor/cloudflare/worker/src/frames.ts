// The frames of internal/guest/wire: a byte of kind, four bytes of length (big endian), the payload. The last
// one is the result of a run.

const kindOutput = 1;
const kindResult = 3;
const headerSize = 5;

// Result is how a helper ended, as far as this Worker reads it.
export interface Result {
  exit_code: number;
  // data is a fingerprint of /data, where it was asked for and could be told.
  data?: string;
  // cpu_time is what the sandbox has used since it started, in nanoseconds, where that was asked for and could be told.
  cpu_time?: number;
  // problem is set when the helper could not do its work.
  problem?: string;
  message?: string;
}

// cpuOf is what a sandbox had used when a helper ended, in microseconds; 0 where that was not told.
export function cpuOf({ cpu_time = 0 }: Result): number {
  return Math.floor(cpu_time / 1000);
}

// Scanner takes a stream apart, in pieces of any size.
export class Scanner {
  private readonly header = new Uint8Array(headerSize);
  private headed = 0;
  private left = 0;
  private held: Uint8Array[] = [];
  private complete = false;

  // scan returns the payloads of standard output that a piece holds.
  scan(piece: Uint8Array): Uint8Array[] {
    const output: Uint8Array[] = [];
    for (let at = 0; at < piece.length; ) {
      if (this.headed < headerSize) {
        this.header[this.headed++] = piece[at++] ?? 0;
        if (this.headed < headerSize) continue;
        this.left = new DataView(this.header.buffer).getUint32(1);
      } else {
        const payload = piece.subarray(at, at + this.left);
        if (this.kind === kindOutput) output.push(payload);
        if (this.kind === kindResult) this.held.push(payload);
        at += payload.length;
        this.left -= payload.length;
      }
      if (this.left === 0) {
        this.complete = this.complete || this.kind === kindResult;
        this.headed = 0;
      }
    }
    return output;
  }

  // result returns the result once all of it has come, null before.
  result(): Result | null {
    return this.complete ? (JSON.parse(new TextDecoder().decode(concat(this.held))) as Result) : null;
  }

  private get kind(): number {
    return this.header[0] ?? 0;
  }
}

export function concat(pieces: Uint8Array[]): Uint8Array {
  const all = new Uint8Array(pieces.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const p of pieces) {
    all.set(p, at);
    at += p.length;
  }
  return all;
}
