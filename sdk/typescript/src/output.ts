import { SandboxError } from "./errors.js";
import { joined } from "./transport.js";
import type { Lease } from "./types.js";

/** A longer line is forwarded in pieces of this many characters. */
const longestLine = 1 << 16;

/** Gets a line of output without its end. The command's output waits for what it returns. */
export type OnLine = (line: string) => unknown;

/** A program with its arguments, or a line for the image's shell. */
export type CommandLine = string | string[];

export function commandOf(command: CommandLine): string[] {
  return typeof command === "string" ? ["/bin/sh", "-c", command] : command;
}

export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

export function toBase64(bytes: Uint8Array): string {
  let text = "";
  for (let i = 0; i < bytes.length; i += 4096) text += String.fromCharCode(...bytes.subarray(i, i + 4096));
  return btoa(text);
}

export function decode(data: string, encoding?: string): Uint8Array<ArrayBuffer> {
  return encoding === "base64" ? fromBase64(data) : new TextEncoder().encode(data);
}

function textOf(bytes: Uint8Array): string {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
}

/** A piece of output. */
export class Output {
  constructor(
    readonly stream: "stdout" | "stderr",
    readonly data: Uint8Array<ArrayBuffer>,
  ) {}

  get text(): string {
    return textOf(this.data);
  }
}

/** How a command ended, in the terms of the API. */
export interface Ending {
  exit_code: number;
  timed_out?: boolean;
  oom_killed?: boolean;
  truncated?: boolean;
}

/** The result of a command. A command that fails is a result, not an error. It has the first output of each stream, up to
 * outputLimit bytes. */
export class Result {
  /** The program's own, 124 after a timeout, 126 or 127 if it could not start, 128 + n if signal n ended it. */
  readonly exitCode: number;
  readonly timedOut: boolean;
  readonly oomKilled: boolean;
  /** Output beyond a limit was dropped. */
  readonly truncated: boolean;

  constructor(
    readonly execId: string,
    end: Ending,
    readonly rawStdout: Uint8Array,
    readonly rawStderr: Uint8Array,
    dropped: boolean,
  ) {
    this.exitCode = end.exit_code;
    this.timedOut = end.timed_out ?? false;
    this.oomKilled = end.oom_killed ?? false;
    this.truncated = dropped || (end.truncated ?? false);
  }

  get stdout(): string {
    return textOf(this.rawStdout);
  }

  get stderr(): string {
    return textOf(this.rawStderr);
  }

  /** Returns the result of a command that succeeded. Otherwise it is an error, "failed". */
  check(): this {
    if (this.exitCode !== 0) {
      const why = this.timedOut ? "timed out" : `ended with exit code ${this.exitCode}`;
      throw new SandboxError("failed", `command ${this.execId} ${why}: ${this.stderr.trim().slice(-1000)}`, {
        reason: "sandbox_exec_failed",
      });
    }
    return this;
  }
}

/** The result of a run: also its lease with the cost, the collected files, and the paths that do not exist. */
export class RunResult extends Result {
  constructor(
    result: Collected,
    execId: string,
    end: Ending,
    readonly lease: Lease,
    readonly missing: string[],
    /** A tar archive. */
    readonly files: Uint8Array,
  ) {
    super(execId, end, result.stdout, result.stderr, result.dropped);
  }
}

export interface Collected {
  stdout: Uint8Array;
  stderr: Uint8Array;
  dropped: boolean;
}

/** Collects output, and forwards its lines to callbacks. */
export class Collector {
  #kept = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  #size = { stdout: 0, stderr: 0 };
  #dropped = false;
  readonly #lines: { stdout: Lines; stderr: Lines };

  constructor(
    private readonly limit: number,
    onStdout?: OnLine,
    onStderr?: OnLine,
  ) {
    this.#lines = { stdout: new Lines(onStdout), stderr: new Lines(onStderr) };
  }

  async add(output: Output): Promise<void> {
    const kept = output.data.subarray(0, this.limit - this.#size[output.stream]);
    this.#kept[output.stream].push(kept);
    this.#size[output.stream] += kept.length;
    this.#dropped ||= kept.length < output.data.length;
    await this.#lines[output.stream].add(output.data);
  }

  /** Forwards unfinished lines, and returns what was collected. */
  async end(): Promise<Collected> {
    await this.#lines.stdout.end();
    await this.#lines.stderr.end();
    return { stdout: joined(this.#kept.stdout), stderr: joined(this.#kept.stderr), dropped: this.#dropped };
  }
}

/** Splits text into lines without their ends. */
class Lines {
  #rest = "";
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });

  constructor(private readonly callback: OnLine | undefined) {}

  async add(data?: Uint8Array): Promise<void> {
    if (this.callback === undefined) return;
    const lines = (this.#rest + this.#decoder.decode(data, { stream: data !== undefined })).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const line of lines) await this.callback(line.endsWith("\r") ? line.slice(0, -1) : line);
    while (this.#rest.length >= longestLine) {
      const piece = this.#rest.slice(0, longestLine);
      this.#rest = this.#rest.slice(longestLine);
      await this.callback(piece);
    }
  }

  async end(): Promise<void> {
    await this.add();
    if (this.#rest !== "") await this.callback?.(this.#rest);
    this.#rest = "";
  }
}
