// Running the guest inside of a container. The guest (internal/guest) does all work there, as in a sandbox on
// Docker: what it is asked stands in its arguments, and what it answers are the frames of internal/guest/wire,
// which pass through here unread.

import { Failure, text } from "./errors";
import { isBetween, isEnv } from "./settings";
import type { Chunks } from "./signature";

export const guest = "/.sandbox/guest";

// HelperCall is the first chunk of a run; the others are its standard input.
export interface HelperCall {
  args: string[];
  user: string; // "" is the sandbox's own
  env: Record<string, string>;
  // limit_ms is after how long it must have ended.
  limit_ms: number;
  // detached commands go on when their caller leaves.
  detached: boolean;
}

// maxLimit is a day in milliseconds, which is more than any command gets.
const maxLimit = 25 * 3600_000;

// killed is the least exit code of a process that a signal ended.
const killed = 128;

// maxDiagnostics bounds what is kept of a guest's own complaints, in bytes.
const maxDiagnostics = 4 << 10;

export function parseCall(chunk: Uint8Array | null): HelperCall {
  let c: Partial<Record<keyof HelperCall, unknown>>;
  try {
    c = JSON.parse(new TextDecoder().decode(chunk ?? undefined));
  } catch {
    throw new Failure("invalid", "the first chunk must say what to run, as JSON");
  }
  const valid =
    Array.isArray(c.args) &&
    c.args.every((a) => typeof a === "string") &&
    typeof c.user === "string" &&
    isEnv(c.env) &&
    isBetween(c.limit_ms, 1, maxLimit) &&
    typeof c.detached === "boolean";
  if (!valid) throw new Failure("invalid", "the first chunk must have args, user, env, limit_ms and detached");
  return c as unknown as HelperCall;
}

// Helper is one run of the guest.
export class Helper {
  // ended is settled when the run has ended, or nobody can say any more whether it has. It never rejects.
  readonly ended: Promise<void>;
  readonly output: ReadableStream<Uint8Array>;
  private readonly process: ExecProcess;
  private readonly writable: WritableStream<Uint8Array>;

  // exitCode is 0 for a guest that has said how its work ended. It may reject.
  get exitCode(): Promise<number> {
    return this.process.exitCode;
  }

  static async start(container: Container, call: HelperCall): Promise<Helper> {
    const process = await container.exec([guest, ...call.args], {
      stdin: "pipe",
      env: call.env,
      ...(call.user === "" ? {} : { user: call.user }),
    });
    return new Helper(process);
  }

  private constructor(process: ExecProcess) {
    this.process = process;
    const { readable, writable } = new IdentityTransformStream();
    this.output = readable;
    this.writable = writable;
    this.ended = this.pump();
  }

  // feed sends it the rest of a body, and returns once the body ends: its caller keeps it open until it has
  // all of the output.
  async feed(chunks: Chunks): Promise<void> {
    const stdin = this.process.stdin?.getWriter();
    try {
      for (let p = await chunks.next(); p !== null; p = await chunks.next()) {
        await stdin?.write(p);
      }
      await stdin?.close();
    } catch {
      // Nobody need read all of a standard input. If it is the caller who has gone, the guest sees the end.
      await stdin?.close().catch(() => undefined);
    }
    await chunks.closed();
  }

  // discard reads the output, which nobody wants.
  async discard(): Promise<void> {
    await this.process.stdin?.close();
    await collect(this.output);
  }

  // pump passes the output on, whose last frame is the result. When nobody takes it any more it is read all
  // the same: a container's engine may wait for that before it sees that the container has ended.
  private async pump(): Promise<void> {
    const out = new Outlet(this.writable);
    const complaints = collect(this.process.stderr);
    try {
      const stdout = this.process.stdout?.getReader();
      for (let piece = await stdout?.read(); piece !== undefined && !piece.done; piece = await stdout?.read()) {
        await out.write(piece.value as Uint8Array);
      }
      const exitCode = await this.process.exitCode;
      // A guest ends with 0 once it has written its result. One that was killed tells nothing of its work.
      if (exitCode >= killed) throw new Error(`the guest was killed: exit code ${exitCode}`);
      if (exitCode !== 0) {
        await out.write(problem(`the guest ended with exit code ${exitCode}: ${await complaints}`));
      }
      await out.close();
    } catch (error) {
      await out.abort(error);
    }
  }
}

// Outlet is a stream whose reader may go away.
class Outlet {
  private readonly writer: WritableStreamDefaultWriter<Uint8Array>;
  private gone = false;

  constructor(writable: WritableStream<Uint8Array>) {
    this.writer = writable.getWriter();
  }

  write(p: Uint8Array): Promise<void> {
    return this.unlessGone(() => this.writer.write(p));
  }

  close(): Promise<void> {
    return this.unlessGone(() => this.writer.close());
  }

  abort(reason: unknown): Promise<void> {
    return this.unlessGone(() => this.writer.abort(reason));
  }

  private async unlessGone(act: () => Promise<void>): Promise<void> {
    if (this.gone) return;
    try {
      await act();
    } catch {
      this.gone = true;
    }
  }
}

// collect reads a stream to its end and returns how it begins.
async function collect(stream: ReadableStream | null): Promise<string> {
  let kept = "";
  const decoder = new TextDecoder();
  try {
    for await (const piece of stream ?? []) {
      if (kept.length < maxDiagnostics) kept += decoder.decode(piece as Uint8Array, { stream: true });
    }
  } catch (error) {
    kept += ` (${text(error)})`;
  }
  return kept.slice(0, maxDiagnostics).trim();
}

// problem is a result frame of internal/guest/wire.
function problem(message: string): Uint8Array {
  const kindResult = 3;
  const payload = new TextEncoder().encode(JSON.stringify({ exit_code: 0, duration: 0, problem: "failed", message }));
  const frame = new Uint8Array(5 + payload.length);
  frame[0] = kindResult;
  new DataView(frame.buffer).setUint32(1, payload.length);
  frame.set(payload, 5);
  return frame;
}
