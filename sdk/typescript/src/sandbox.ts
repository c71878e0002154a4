import type { AgentRequest, Client } from "./client.js";
import { SandboxError } from "./errors.js";
import { Collector, Output, Result, commandOf, decode, toBase64, type CommandLine, type Ending, type OnLine } from "./output.js";
import { defined, goDuration, segment, sleep, type Answer, type CallOptions, type Content, type Duration } from "./transport.js";
import type * as types from "./types.js";

// Node.js 20 before 20.4 does not have it; compiled `await using` needs it.
(Symbol as { asyncDispose?: symbol }).asyncDispose ??= Symbol.for("Symbol.asyncDispose");

export interface StartOptions extends CallOptions {
  /** Names the command. A second call with the same id starts nothing. */
  id?: string;
  env?: Record<string, string>;
  cwd?: string;
  user?: string;
  /** Runs the command as the sandbox's verifier, whose result other code cannot forge. */
  verifier?: boolean;
  /** Default: 120 s. */
  timeout?: Duration;
}

export interface CommandOptions extends StartOptions {
  onStdout?: OnLine;
  onStderr?: OnLine;
  stdin?: string | Uint8Array;
  /** How many bytes of each stream the result has. Default: 1 MiB. */
  outputLimit?: number;
}

export interface SessionOptions extends CallOptions {
  id?: string;
  env?: Record<string, string>;
  cwd?: string;
  user?: string;
}

export interface ProcessOptions extends CallOptions {
  env?: Record<string, string>;
  cwd?: string;
  user?: string;
  /** Starts it again when it exits. */
  restart?: boolean;
  endpoint?: types.Endpoint;
}

/** A command of a lease. Iterating over it yields its output from the beginning until it ends. */
export class Command {
  constructor(
    private readonly client: Client,
    readonly leaseId: string,
    readonly id: string,
    private readonly patience: number,
  ) {}

  /** Returns the state of the command. */
  info(options: CallOptions = {}): Promise<types.Exec> {
    return this.client.getExec(this.leaseId, this.id, options);
  }

  /** Kills the command and its processes, and waits for their exit. */
  cancel(options: CallOptions = {}): Promise<types.Exec> {
    return this.client.cancelExec(this.leaseId, this.id, options);
  }

  /** Yields one stream of its output, with follow until the command ends. */
  read(
    stream: "stdout" | "stderr" = "stdout",
    options: CallOptions & { offset?: number; follow?: boolean } = {},
  ): AsyncGenerator<Uint8Array<ArrayBuffer>, void, void> {
    return this.client.readExec(this.leaseId, this.id, stream, options);
  }

  /** Waits until the command has ended. One that failed to run or was cancelled is an error. */
  async wait(options: CallOptions = {}): Promise<types.Exec & Ending> {
    const deadline = Date.now() + this.patience;
    for (let pause = 10; ; pause = Math.min(pause * 2, 1000)) {
      const state = await this.info(options);
      if (state.exit_code !== undefined) return { ...state, exit_code: state.exit_code };
      const about = `command ${this.id} of lease ${this.leaseId}`;
      if (state.state !== "running") {
        const reason = state.state === "cancelled" ? "exec_cancelled" : "sandbox_exec_failed";
        throw new SandboxError("failed", `${about} ${state.state}: ${state.error ?? "no cause is known"}`, { reason });
      }
      if (Date.now() > deadline) throw new SandboxError("timeout", `${about} has not ended in time; cancel it`);
      await sleep(pause, options.signal);
    }
  }

  [Symbol.asyncIterator](): AsyncGenerator<Output, void, void> {
    return this.output();
  }

  /** Yields both streams of its output as they arrive, until the command ends. */
  async *output(options: CallOptions = {}): AsyncGenerator<Output, void, void> {
    const stop = new AbortController();
    const abort = () => stop.abort(options.signal?.reason);
    options.signal?.addEventListener("abort", abort, { once: true });
    if (options.signal?.aborted) abort();
    const next = async (stream: "stdout" | "stderr", pieces: AsyncGenerator<Uint8Array<ArrayBuffer>, void, void>) => {
      const { done, value } = await pieces.next();
      return { stream, pieces, value: done ? undefined : value };
    };
    const waiting = new Map<string, ReturnType<typeof next>>();
    for (const stream of ["stdout", "stderr"] as const) {
      waiting.set(stream, next(stream, this.read(stream, { follow: true, signal: stop.signal })));
    }
    try {
      while (waiting.size > 0) {
        const { stream, pieces, value } = await Promise.race(waiting.values());
        if (value === undefined) {
          waiting.delete(stream);
          continue;
        }
        yield new Output(stream, value);
        waiting.set(stream, next(stream, pieces));
      }
    } finally {
      options.signal?.removeEventListener("abort", abort);
      stop.abort(new Error("the output is not read any more"));
      await Promise.allSettled(waiting.values());
    }
  }
}

/** Runs commands: a sandbox, or a session in it. */
abstract class Runner {
  /** @internal */
  constructor(protected readonly client: Client) {}

  protected abstract leaseId(): string;
  protected abstract generation(): number;
  protected abstract execPath(): string;

  protected request(command: CommandLine): types.ExecRequest {
    return { command: commandOf(command) };
  }

  #body(command: CommandLine, options: StartOptions): types.ExecRequest & { id: string } {
    const { id = `ts-${crypto.randomUUID()}`, env, cwd, user, verifier, timeout } = options;
    const more = defined<types.ExecRequest>({
      env,
      cwd,
      user,
      as: verifier ? "verifier" : undefined,
      timeout: timeout === undefined ? undefined : goDuration(timeout),
    } as types.ExecRequest);
    return { ...this.request(command), ...more, id };
  }

  /** Starts a command that continues after this program ends. */
  async start(command: CommandLine, options: StartOptions = {}): Promise<Command> {
    const body = this.#body(command, options);
    const started = await this.client.start(this.execPath(), body, { generation: this.generation() }, options.signal);
    return new Command(this.client, this.leaseId(), started.id, this.client.patience(options.timeout));
  }

  /**
   * Runs a command and waits for its result. A string is a line for the image's shell, a list is run as it is.
   *
   * onStdout and onStderr get each line as it arrives, without its end. After a lost connection, the output resumes, and
   * nothing runs twice. A command with stdin ends with its connection. If a callback throws, the command is cancelled.
   */
  async run(command: CommandLine, options: CommandOptions = {}): Promise<Result> {
    const { onStdout, onStderr, stdin, outputLimit = 1 << 20, signal, timeout } = options;
    const collector = new Collector(outputLimit, onStdout, onStderr);
    if (stdin !== undefined) {
      const body = this.#body(command, options);
      const end = await this.client.outputs<types.ExecResult>(
        this.execPath(),
        {
          query: { generation: this.generation() },
          headers: { accept: "application/x-ndjson", "content-type": "application/x-ndjson" },
          body: withInput(body, typeof stdin === "string" ? new TextEncoder().encode(stdin) : stdin),
          timeout: this.client.patience(timeout),
          signal,
        },
        (stream, data) => collector.add(new Output(stream as "stdout" | "stderr", data)),
      );
      const { stdout, stderr, dropped } = await collector.end();
      return new Result(body.id, end, stdout, stderr, dropped);
    }
    const started = await this.start(command, options);
    try {
      for await (const output of started.output({ signal })) await collector.add(output);
      const end = await started.wait({ signal });
      const { stdout, stderr, dropped } = await collector.end();
      return new Result(started.id, end, stdout, stderr, dropped);
    } catch (error) {
      await started.cancel().catch(() => undefined); // the caller must see the first error
      throw error;
    }
  }
}

/** Returns a request with the lines of its standard input. */
function withInput(body: types.ExecRequest, stdin: Uint8Array): string {
  const lines: object[] = [body];
  for (let i = 0; i < stdin.length; i += 1 << 16) {
    lines.push({ data: toBase64(stdin.subarray(i, i + (1 << 16))), encoding: "base64" });
  }
  return lines.map((line) => JSON.stringify(line) + "\n").join("");
}

/** A leased sandbox. With await using, the lease is released at the end. */
export class Sandbox extends Runner {
  /** @internal */
  constructor(
    client: Client,
    public lease: types.Lease,
  ) {
    super(client);
  }

  /** The id of the lease. */
  get id(): string {
    return this.lease.id;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  protected leaseId(): string {
    return this.id;
  }

  protected generation(): number {
    return this.lease.generation;
  }

  protected execPath(): string {
    return `/v1/leases/${segment(this.id)}/exec`;
  }

  get #fence(): { generation: number } {
    return { generation: this.lease.generation };
  }

  // The lease.

  /** Reads the lease again. */
  async refresh(options: CallOptions = {}): Promise<types.Lease> {
    return (this.lease = await this.client.getLease(this.id, {}, options));
  }

  /** Renews the lease, optionally with other settings. */
  async renew(settings?: types.LeaseSettings, options: CallOptions = {}): Promise<types.Lease> {
    return (this.lease = await this.client.renewLease(this.id, settings ? { settings } : {}, this.#fence, options));
  }

  /** Ends the lease and waits until its sandbox is gone. A lease that has ended stays as it is. */
  async release(options: CallOptions = {}): Promise<types.Lease> {
    try {
      this.lease = await this.client.releaseLease(this.id, this.#fence, options);
    } catch (error) {
      const over =
        error instanceof SandboxError && (error.code === "lease_ended" || error.reason === "other_generation");
      if (!over) throw error;
    }
    return this.lease;
  }

  /** Puts the sandbox to sleep. A command wakes it. */
  async sleep(options: CallOptions = {}): Promise<types.Lease> {
    return (this.lease = await this.client.sleepLease(this.id, this.#fence, options));
  }

  /** Wakes the sandbox. */
  async wake(options: CallOptions = {}): Promise<types.Lease> {
    return (this.lease = await this.client.wakeLease(this.id, this.#fence, options));
  }

  /** Samples what the sandbox uses, without waking it. */
  usage(options: CallOptions = {}): Promise<types.LeaseUsage> {
    return this.client.leaseUsage(this.id, this.#fence, options);
  }

  /** Checks whether the sandbox is usable, without waking it. */
  health(options: CallOptions = {}): Promise<types.LeaseHealth> {
    return this.client.leaseHealth(this.id, this.#fence, options);
  }

  // Commands and sessions.

  /** Returns an existing command. */
  command(id: string): Command {
    return new Command(this.client, this.id, id, this.client.patience(undefined));
  }

  /** Opens a session, whose commands share variables and a directory. With await using, it is closed at the end. */
  async session(options: SessionOptions = {}): Promise<Session> {
    const { id = `ts-${crypto.randomUUID()}`, env, cwd, user, signal } = options;
    const body = defined<types.CreateSession>({ id, env, cwd, user } as types.CreateSession);
    return new Session(this.client, this, await this.client.createSession(this.id, body, this.#fence, { signal }));
  }

  // Files. Relative paths start at /workspace.

  /** Returns the content of a file. */
  async readFile(path: string, options: CallOptions & { maxBytes?: number } = {}): Promise<Uint8Array<ArrayBuffer>> {
    return (await this.client.readFiles(this.id, path, { ...options, ...this.#fence })).bytes();
  }

  /** Opens a file for reading. */
  openFile(path: string, options: CallOptions = {}): Promise<Answer> {
    return this.client.readFiles(this.id, path, { ...options, ...this.#fence });
  }

  /** Replaces a file atomically. mode has its permissions, by default 0o644. */
  writeFile(path: string, content: Content, options: CallOptions & { mode?: number } = {}): Promise<void> {
    return this.client.writeFiles(this.id, path, content, { ...options, ...this.#fence });
  }

  /** Opens a file or directory as a tar stream. */
  readTar(path: string, options: CallOptions = {}): Promise<Answer> {
    return this.client.readFiles(this.id, path, { ...options, ...this.#fence, tar: true });
  }

  /** Unpacks a tar archive in a directory. */
  writeTar(directory: string, content: Content, options: CallOptions = {}): Promise<void> {
    return this.client.writeFiles(this.id, directory, content, { ...options, ...this.#fence, tar: true });
  }

  /** Yields the files of a directory, by name. */
  async *listFiles(path = "/workspace", options: CallOptions = {}): AsyncGenerator<types.FileInfo, void, void> {
    for (let after: string | undefined; ; ) {
      const query = { path, limit: 1000, ...this.#fence, ...(after === undefined ? {} : { after }) };
      const { files } = await this.client.listFiles(this.id, query, options);
      yield* files;
      const last = files.at(-1);
      if (files.length < 1000 || last === undefined) return;
      after = last.name_encoding === "base64" ? escaped(decode(last.name, "base64")) : last.name;
    }
  }

  /** Describes a file, directory or symlink. */
  statFile(path: string, options: CallOptions = {}): Promise<types.FileInfo> {
    return this.client.statFile(this.id, { path, ...this.#fence }, options);
  }

  /** Deletes a file or directory. */
  removeFile(path: string, options: CallOptions & { recursive?: boolean } = {}): Promise<void> {
    const { recursive = false, signal } = options;
    return this.client.removeFile(this.id, { path, recursive, ...this.#fence }, { signal });
  }

  // Processes.

  /** Starts a process that runs as long as the sandbox does. */
  startProcess(name: string, command: CommandLine, options: ProcessOptions = {}): Promise<types.Process> {
    const { restart, signal, env, cwd, user, endpoint } = options;
    const spec = defined<types.ProcessSpec>({
      name,
      command: commandOf(command),
      env,
      cwd,
      user,
      endpoint,
      restart: restart ? "always" : undefined,
    } as types.ProcessSpec);
    return this.client.startProcess(this.id, spec, this.#fence, { signal });
  }

  /** Waits for a line of the log that matches a pattern, for an open port or for the exit. */
  waitProcess(
    name: string,
    until: { log?: string; port?: number; exit?: boolean; timeout?: Duration },
    options: CallOptions = {},
  ): Promise<types.ProcessWaited> {
    const { timeout, ...rest } = until;
    const wait: types.ProcessWait = timeout === undefined ? rest : { ...rest, timeout: goDuration(timeout) };
    return this.client.waitProcess(this.id, name, wait, this.#fence, options);
  }

  /** Describes a process. */
  process(name: string, options: CallOptions = {}): Promise<types.Process> {
    return this.client.getProcess(this.id, name, this.#fence, options);
  }

  /** Lists the processes by name. */
  async processes(options: CallOptions = {}): Promise<types.Process[]> {
    return (await this.client.listProcesses(this.id, options)).processes;
  }

  /** Kills a process and its descendants, and waits for their exit. */
  killProcess(name: string, options: CallOptions = {}): Promise<types.Process> {
    return this.client.killProcess(this.id, name, this.#fence, options);
  }

  /** Yields the log of a process, with follow until it exits. */
  readProcess(
    name: string,
    options: CallOptions & { offset?: number; follow?: boolean } = {},
  ): AsyncGenerator<Uint8Array<ArrayBuffer>, void, void> {
    return this.client.readProcess(this.id, name, { ...options, ...this.#fence });
  }

  /** Yields the log of a companion, with follow until its program ends. */
  readCompanion(
    name: string,
    options: CallOptions & { offset?: number; follow?: boolean } = {},
  ): AsyncGenerator<Uint8Array<ArrayBuffer>, void, void> {
    return this.client.readCompanion(this.id, name, { ...options, ...this.#fence });
  }

  /** Forwards a request to an agent of the sandbox. */
  askAgent(agent: string, path = "", request: AgentRequest = {}): Promise<Answer> {
    return this.client.askAgent(this.id, agent, path, request);
  }

  /** Yields the events of the lease and then new ones, without an end. */
  events(query: { after_id?: number } = {}, options: CallOptions = {}): AsyncGenerator<types.Event, void, void> {
    return this.client.followEvents({ lease_id: this.id, ...query }, options);
  }
}

/** Returns bytes as text in which U+DC80 to U+DCFF stand for bytes that are not UTF-8, as Python does. */
function escaped(bytes: Uint8Array): string {
  let text = "";
  for (let i = 0; i < bytes.length; ) {
    let n = [1, 2, 3, 4].find((n) => {
      try {
        return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes.subarray(i, i + n)).length > 0;
      } catch {
        return false;
      }
    });
    text += n
      ? new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes.subarray(i, i + n))
      : String.fromCharCode(0xdc00 + (bytes[i] ?? 0));
    i += n ?? 1;
  }
  return text;
}

/** A session in a sandbox. A string as a command runs in the session's own shell, which keeps what it exports. */
export class Session extends Runner {
  /** @internal */
  constructor(
    client: Client,
    private readonly sandbox: Sandbox,
    public session: types.Session,
  ) {
    super(client);
  }

  get id(): string {
    return this.session.id;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  protected leaseId(): string {
    return this.sandbox.id;
  }

  protected generation(): number {
    return this.session.generation;
  }

  protected execPath(): string {
    return `/v1/leases/${segment(this.sandbox.id)}/sessions/${segment(this.id)}/exec`;
  }

  protected override request(command: CommandLine): types.ExecRequest {
    return typeof command === "string" ? { shell: command } : { command };
  }

  /** Closes the session and cancels its running command. The recording stays. */
  async close(options: CallOptions = {}): Promise<types.Session> {
    const query = { generation: this.session.generation };
    return (this.session = await this.client.closeSession(this.sandbox.id, this.id, query, options));
  }

  /** Yields the recording and then new events, until the session is closed and idle. */
  events(query: { after?: number } = {}, options: CallOptions = {}): AsyncGenerator<types.SessionEvent, void, void> {
    const all = { generation: this.session.generation, ...query };
    return this.client.followSessionEvents(this.sandbox.id, this.id, all, options);
  }
}
