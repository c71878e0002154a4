// The frames of internal/guest/wire: one byte for the kind, four for the length (big endian), then the payload. The
// last frame is the result.

const kindOutput = 1;
const kindResult = 3;
const headerSize = 5;

// Result says how an operation ended. It has only the fields that this Worker reads.
export interface Result {
  exit_code: number;
  // duration is the time that a command took, in nanoseconds; absent or 0 without one.
  duration?: number;
  // data is a fingerprint of /data; absent if it was not requested or is unknown.
  data?: string;
  // cpu_time is the CPU time of the sandbox since its start, in nanoseconds; absent if not requested or unknown.
  cpu_time?: number;
  // problem is set if the guest could not carry out the operation.
  problem?: string;
  message?: string;
}

// cpuOf returns the CPU time of a result, in microseconds; 0 if it is unknown.
export function cpuOf({ cpu_time = 0 }: Result): number {
  return Math.floor(cpu_time / 1000);
}

// Scanner splits a stream into frames. It accepts pieces of any size.
export class Scanner {
  private readonly header = new Uint8Array(headerSize);
  private headed = 0;
  private left = 0;
  private held: Uint8Array[] = [];
  private complete = false;

  // scan returns the payloads of standard output in a piece.
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

  // result returns the result once it is complete, null before.
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
