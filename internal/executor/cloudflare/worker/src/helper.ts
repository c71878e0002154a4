// Running the guest inside of a container. The guest (internal/guest) does all work there, as in a sandbox on
// Docker: what it is asked stands in its arguments, and what it answers are the frames of internal/guest/wire,
// which pass through here unread.

import { Failure, text } from "./errors";
import { problem, type Result, Scanner } from "./frames";
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
  // quiet work is no use of the sandbox, and puts off nothing.
  quiet: boolean;
}

// Before is done between the end of a run's work and its caller's hearing of it.
export type Before = (result: Result) => Promise<void>;

// maxLimit is a day in milliseconds, which is more than any command gets.
const maxLimit = 25 * 3600_000;

// killed is the least exit code of a process that a signal ended.
const killed = 128;

// readerGrace is what the reader of a run gets to take its output once the container is to end, in milliseconds.
const readerGrace = 1000;

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
    typeof c.detached === "boolean" &&
    typeof c.quiet === "boolean";
  if (!valid) throw new Failure("invalid", "the first chunk must have args, user, env, limit_ms, detached and quiet");
  return c as unknown as HelperCall;
}

// Helper is one run of the guest.
export class Helper {
  // ended is settled when the run has ended, or nobody can say any more whether it has. It never rejects.
  readonly ended: Promise<void>;
  readonly output: ReadableStream<Uint8Array>;
  private readonly process: ExecProcess;
  private readonly out: Outlet;

  // exitCode is 0 for a guest that has said how its work ended. It may reject.
  get exitCode(): Promise<number> {
    return this.process.exitCode;
  }

  static async start(container: Container, call: HelperCall, before: Before): Promise<Helper> {
    const process = await container.exec([guest, ...call.args], {
      stdin: "pipe",
      env: call.env,
      ...(call.user === "" ? {} : { user: call.user }),
    });
    return new Helper(process, before);
  }

  private constructor(
    process: ExecProcess,
    private readonly before: Before,
  ) {
    this.process = process;
    const { readable, writable } = new IdentityTransformStream();
    this.output = readable;
    this.out = new Outlet(writable);
    this.ended = this.pump();
  }

  // leaveReader has the run wait for its reader no longer than for readerGrace: what that has not taken by then is
  // dropped, and the output ends with an error.
  leaveReader(): void {
    this.out.expire(readerGrace);
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

  // pump passes the output on, whose last frame is the result. When nobody takes it any more it is read all
  // the same: a container's engine may wait for that before it sees that a run, or the container, has ended.
  private async pump(): Promise<void> {
    const { out } = this;
    const complaints = collect(this.process.stderr);
    try {
      const stdout = this.process.stdout?.getReader();
      const scanner = new Scanner();
      for (let piece = await stdout?.read(); piece !== undefined && !piece.done; piece = await stdout?.read()) {
        const { before } = scanner.scan(piece.value as Uint8Array);
        if (before.length > 0) await out.write(before);
        const result = scanner.result();
        if (result !== null) {
          await this.before(result);
          await out.write(scanner.resultFrame());
        }
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
    } finally {
      out.end();
    }
  }
}

// Work is a run of the guest for this Worker itself.
export interface Work {
  args: string[];
  user?: string;
  stdin?: ReadableStream<Uint8Array>;
  // take gets what it writes to standard output.
  take?: (payload: Uint8Array) => Promise<void>;
}

// work runs the guest and returns its report. It fails where the guest could not do its work.
export async function work(container: Container, w: Work): Promise<Result> {
  const process = await container.exec([guest, ...w.args], {
    stdin: w.stdin ?? "pipe",
    ...(w.user === undefined ? {} : { user: w.user }),
  });
  if (w.stdin === undefined) await process.stdin?.close();
  const complaints = collect(process.stderr);
  const scanner = new Scanner();
  const stdout = process.stdout?.getReader();
  for (let piece = await stdout?.read(); piece !== undefined && !piece.done; piece = await stdout?.read()) {
    for (const payload of scanner.scan(piece.value as Uint8Array).output) await w.take?.(payload);
  }
  const exitCode = await process.exitCode;
  const result = scanner.result();
  if (result === null) throw new Error(`guest ${w.args[0]} ended with exit code ${exitCode}: ${await complaints}`);
  if (result.problem) throw new Error(`guest ${w.args[0]}: ${result.message}`);
  return result;
}

// Outlet is a stream whose reader may go away.
class Outlet {
  private readonly writer: WritableStreamDefaultWriter<Uint8Array>;
  private gone = false;
  // release ends the wait for what is being written; null while nothing is.
  private release: (() => void) | null = null;
  private timer: number | null = null;

  constructor(writable: WritableStream<Uint8Array>) {
    this.writer = writable.getWriter();
  }

  // expire gives the reader its last time, in milliseconds.
  expire(ms: number): void {
    if (this.gone || this.timer !== null) return;
    this.timer = setTimeout(() => {
      this.gone = true;
      this.writer.abort(new Error("the container ends, and the output was not taken in time")).catch(() => undefined); // it may have gone
      this.release?.();
    }, ms);
  }

  // end says that nothing more is written.
  end(): void {
    this.gone = true;
    if (this.timer !== null) clearTimeout(this.timer); // it would keep the Durable Object in memory
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
      const released = new Promise<void>((resolve) => (this.release = resolve));
      await Promise.race([act(), released]);
    } catch {
      this.gone = true;
    }
    this.release = null;
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
