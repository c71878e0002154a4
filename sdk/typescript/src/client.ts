import { SandboxError } from "./errors.js";
import { Operations } from "./operations.js";
import { Collector, Output, RunResult, commandOf, decode, type CommandLine, type Ending, type OnLine } from "./output.js";
import { Sandbox } from "./sandbox.js";
import {
  Answer,
  defined,
  goDuration,
  joined,
  milliseconds,
  segment,
  sleep,
  type CallOptions,
  type Content,
  type Duration,
  type Query,
} from "./transport.js";
import type * as types from "./types.js";
import { sign } from "./webhook.js";

/** Fails a request unless the lease has this generation and this owner. */
export interface Fence {
  generation?: number;
  owner?: string;
}

export interface LeaseOptions extends CallOptions {
  environment: string;
  ttl?: Duration;
  maxLifetime?: Duration;
  sleepAfter?: Duration;
  expiryConditions?: string[];
}

export interface RunOptions extends CallOptions {
  onStdout?: OnLine;
  onStderr?: OnLine;
  agentDid?: string;
  env?: Record<string, string>;
  cwd?: string;
  user?: string;
  timeout?: Duration;
  margin?: Duration;
  image?: string;
  resources?: types.Resources;
  network?: "none" | "restricted" | "full";
  /** A tar archive to unpack in /workspace. */
  files?: Uint8Array;
  stdin?: string | Uint8Array;
  /** Names files to return in files of the result, a tar archive. */
  collect?: string[];
  outputLimit?: number;
}

export interface ConditionOptions extends CallOptions {
  agentDid?: string;
  generation?: number;
  reason?: string;
  /** When it happened. Default: now. */
  at?: Date;
  /** Names the message, which takes effect once, however often it is sent. */
  id?: string;
}

export interface AgentRequest extends CallOptions {
  method?: string;
  query?: Query;
  headers?: Record<string, string>;
  body?: Content;
  session?: string;
}

const defaultTimeout = 120_000; // of a command

interface Streamed extends CallOptions {
  query?: Query;
  headers: Record<string, string>;
  body: Content;
  timeout: number;
}

/**
 * A client of one reconciler. It has a method for each operation of the OpenAPI document.
 *
 * It sends idempotent requests again after lost connections and after 429, 502, 503 and 504, a limited number of times, and
 * honors Retry-After. If the answer to any other request is lost, the error is "unknown_outcome".
 */
export class Client extends Operations {
  // Leases.

  /** Acquires the lease of an agent in an environment, and waits until its sandbox takes commands. It is idempotent: a second
   * call returns the same lease. With await using, the lease is released at the end. */
  async lease(agentDid: string, options: LeaseOptions): Promise<Sandbox> {
    const { environment, ttl, maxLifetime, sleepAfter, expiryConditions, signal } = options;
    const settings = defined<types.LeaseSettings>({
      ttl: ttl === undefined ? undefined : goDuration(ttl),
      max_lifetime: maxLifetime === undefined ? undefined : goDuration(maxLifetime),
      sleep_after: sleepAfter === undefined ? undefined : goDuration(sleepAfter),
      expiry_conditions: expiryConditions,
    });
    const body: types.Acquire = { agent_did: agentDid, environment_id: environment };
    if (Object.keys(settings).length > 0) body.settings = settings;
    return new Sandbox(this, (await this.acquireLease(body, {}, { signal })).lease);
  }

  /** Returns the sandbox of an existing lease. */
  async sandbox(leaseId: string, options: CallOptions = {}): Promise<Sandbox> {
    return new Sandbox(this, await this.getLease(leaseId, {}, options));
  }

  // Commands.

  /** Runs a command that ends with this request. onOutput gets its output as it arrives; with it, Node.js also waits longer than 5
   * minutes. The request is not sent again. Sandbox.run runs a command that survives a lost connection. */
  exec(
    id: string,
    body: types.ExecRequest,
    options: CallOptions & Fence & { onOutput?: (output: Output) => unknown } = {},
  ): Promise<types.ExecResult> {
    return this.#exec(`/v1/leases/${segment(id)}/exec`, body, options);
  }

  /** Runs a command in a session. It is like exec. */
  execInSession(
    id: string,
    session: string,
    body: types.ExecRequest,
    options: CallOptions & Fence & { onOutput?: (output: Output) => unknown } = {},
  ): Promise<types.ExecResult> {
    return this.#exec(`/v1/leases/${segment(id)}/sessions/${segment(session)}/exec`, body, options);
  }

  #exec(
    path: string,
    body: types.ExecRequest,
    options: CallOptions & Fence & { onOutput?: (output: Output) => unknown },
  ): Promise<types.ExecResult> {
    const { generation, owner, onOutput, signal } = options;
    const query = { generation, owner };
    const longer = milliseconds(body.timeout) || defaultTimeout;
    if (onOutput === undefined) return this.call("POST", path, { query, body, slow: true, once: true, longer, signal });
    const headers = { accept: "application/x-ndjson", "content-type": "application/json" };
    const request = { query, headers, body: JSON.stringify(body), timeout: this.slow + longer, signal };
    return this.outputs(path, request, (stream, data) => onOutput(new Output(stream as "stdout" | "stderr", data)));
  }

  /** @internal Forwards the pieces of a streamed command, and returns its result. */
  async outputs<T extends Ending>(
    path: string,
    request: Streamed,
    got: (stream: string, data: Uint8Array<ArrayBuffer>) => unknown,
  ): Promise<T> {
    const answer = await this.open("POST", path, request);
    for await (const line of answer.lines()) {
      if (line === "") continue; // it keeps the connection open
      const message = JSON.parse(line) as types.ExecOutput;
      if (message.error !== undefined) throw SandboxError.of(message.error);
      if (message.result !== undefined) return message.result as unknown as T;
      if (message.stream !== undefined) await got(message.stream, decode(message.data ?? "", message.encoding));
    }
    throw this.lost("POST", path, new Error("the stream ended without a result"));
  }

  /** @internal Starts a detached command. With an id, the request may be sent again. */
  start(path: string, body: types.ExecRequest, query: Query, signal?: AbortSignal): Promise<types.Exec> {
    return this.call("POST", path, { query, body: { ...body, detach: true }, slow: true, once: !body.id, signal });
  }

  /** @internal How long a command may take, in milliseconds. */
  patience(timeout: Duration | undefined): number {
    return (milliseconds(timeout) || defaultTimeout) + this.slow;
  }

  /** Yields the output of a command, with follow until it ends. After a lost connection, it resumes. */
  readExec(
    id: string,
    exec: string,
    stream: "stdout" | "stderr",
    options: CallOptions & { offset?: number; follow?: boolean } = {},
  ): AsyncGenerator<Uint8Array<ArrayBuffer>, void, void> {
    return this.#follow(`/v1/leases/${segment(id)}/execs/${segment(exec)}/${segment(stream)}`, {}, options);
  }

  /** Yields the log of a process, with follow until it exits. After a lost connection, it resumes. */
  readProcess(
    id: string,
    process: string,
    options: CallOptions & Fence & { offset?: number; follow?: boolean } = {},
  ): AsyncGenerator<Uint8Array<ArrayBuffer>, void, void> {
    const query = { generation: options.generation, owner: options.owner };
    return this.#follow(`/v1/leases/${segment(id)}/processes/${segment(process)}/logs`, query, options);
  }

  /** Yields the log of a companion, with follow until its program ends. */
  readCompanion(
    id: string,
    companion: string,
    options: CallOptions & Fence & { offset?: number; follow?: boolean } = {},
  ): AsyncGenerator<Uint8Array<ArrayBuffer>, void, void> {
    const query = { generation: options.generation, owner: options.owner };
    return this.#follow(`/v1/leases/${segment(id)}/companions/${segment(companion)}/logs`, query, options);
  }

  async *#follow(
    path: string,
    query: Record<string, string | number | undefined>,
    options: CallOptions & { offset?: number; follow?: boolean },
  ): AsyncGenerator<Uint8Array<ArrayBuffer>, void, void> {
    const { follow = false, signal } = options;
    let offset = options.offset ?? 0;
    for (let failures = 0; ; ) {
      const began = Date.now();
      const reached = offset;
      try {
        const answer = await this.open("GET", path, {
          query: { ...query, offset: offset || undefined, follow } as Query,
          headers: { accept: "application/octet-stream" },
          timeout: this.quick,
          signal,
        });
        offset = Number(answer.headers.get("log-offset") ?? offset);
        for await (const piece of answer) {
          offset += piece.length;
          yield piece;
        }
        return;
      } catch (error) {
        failures = this.failedAgain(error, failures, offset > reached, began);
        await sleep(this.backoff(failures, error as SandboxError), signal);
      }
    }
  }

  // Events.

  /** Yields the stored events and then new ones, without an end. After a lost connection, it misses none. */
  followEvents(
    query: {
      environment_id?: string;
      lease_id?: string;
      sandbox_id?: string;
      type?: string;
      after_id?: number;
    } = {},
    options: CallOptions = {},
  ): AsyncGenerator<types.Event, void, void> {
    return this.#events("/v1/events", query, "after_id", "id", options);
  }

  /** Yields the recording of a session and then new events, until the session is closed and idle. */
  followSessionEvents(
    id: string,
    session: string,
    query: { generation?: number; after?: number } = {},
    options: CallOptions = {},
  ): AsyncGenerator<types.SessionEvent, void, void> {
    const path = `/v1/leases/${segment(id)}/sessions/${segment(session)}/events`;
    return this.#events(path, query, "after", "sequence", options);
  }

  async *#events<T>(
    path: string,
    query: Record<string, string | number>,
    after: string,
    key: keyof T,
    options: CallOptions,
  ): AsyncGenerator<T, void, void> {
    let last = Number(query[after] ?? 0);
    for (let failures = 0; ; ) {
      const began = Date.now();
      const reached = last;
      try {
        const answer = await this.open("GET", path, {
          query: { ...query, [after]: last || undefined } as Query,
          headers: { accept: "text/event-stream" },
          timeout: this.quick,
          signal: options.signal,
        });
        let kind = "";
        let passed = 0;
        for await (const line of answer.lines()) {
          const colon = line.indexOf(": ");
          const [name, value] = colon < 0 ? [line, ""] : [line.slice(0, colon), line.slice(colon + 2)];
          if (line === "") {
            kind = "";
            last = Math.max(last, passed); // also past events that the filter omits
          } else if (name === "id") passed = Number(value);
          else if (name === "event") kind = value;
          else if (name === "data" && kind === "error") throw SandboxError.of(JSON.parse(value) as types.Problem);
          else if (name === "data" && kind === "closed") return;
          else if (name === "data") {
            const event = JSON.parse(value) as T;
            last = event[key] as number;
            yield event;
          }
        }
        throw this.lost("GET", path, new Error("the stream ended"));
      } catch (error) {
        failures = this.failedAgain(error, failures, last !== reached, began);
        await sleep(this.backoff(failures, error as SandboxError), options.signal);
      }
    }
  }

  // Files.

  /** Opens a file, or with tar a file or directory as a tar stream. */
  readFiles(
    id: string,
    path: string,
    options: CallOptions & Fence & { tar?: boolean; maxBytes?: number } = {},
  ): Promise<Answer> {
    const { tar = false, maxBytes, generation, owner, signal } = options;
    return this.open("GET", `/v1/leases/${segment(id)}/files`, {
      query: { path, max_bytes: maxBytes, generation, owner } as Query,
      headers: { accept: tar ? "application/x-tar" : "application/octet-stream" },
      timeout: this.slow,
      signal,
    });
  }

  /** Opens the commits of a lease's workspace as a Git bundle, or its changes as a diff. */
  readWorkspace(id: string, form: "bundle" | "diff", options: CallOptions & Fence = {}): Promise<Answer> {
    const { generation, owner, signal } = options;
    return this.open("GET", `/v1/leases/${segment(id)}/workspace/${form}`, {
      query: { generation, owner } as Query,
      headers: { accept: "application/octet-stream" },
      timeout: this.slow,
      signal,
    });
  }

  /** Writes a file, or with tar unpacks a tar stream in a directory. mode has the file's permissions, such as 0o644. The
   * request is not sent again. */
  async writeFiles(
    id: string,
    path: string,
    content: Content,
    options: CallOptions & Fence & { tar?: boolean; mode?: number; maxBytes?: number } = {},
  ): Promise<void> {
    const { tar = false, mode, maxBytes, generation, owner, signal } = options;
    const answer = await this.open("PUT", `/v1/leases/${segment(id)}/files`, {
      query: { path, mode: mode?.toString(8).padStart(4, "0"), max_bytes: maxBytes, generation, owner } as Query,
      headers: { accept: "application/json", "content-type": tar ? "application/x-tar" : "application/octet-stream" },
      body: content,
      timeout: this.slow,
      signal,
    });
    await answer.bytes();
  }

  // Runs.

  /** Runs one command in a sandbox of its own, which is destroyed afterwards. The request is not sent again. */
  async run(environment: string, command: CommandLine, options: RunOptions = {}): Promise<RunResult> {
    const { onStdout, onStderr, files, stdin, timeout, margin, signal } = options;
    const request = defined<types.RunRequest>({
      environment_id: environment,
      command: commandOf(command),
      agent_did: options.agentDid,
      env: options.env,
      cwd: options.cwd,
      user: options.user,
      timeout: timeout === undefined ? undefined : goDuration(timeout),
      margin: margin === undefined ? undefined : goDuration(margin),
      image: options.image,
      resources: options.resources,
      network: options.network,
      collect: options.collect,
    } as types.RunRequest);
    const parts: [string, string | Uint8Array][] = [["run", JSON.stringify(request)]];
    if (files !== undefined) parts.push(["files", files]);
    if (stdin !== undefined) parts.push(["stdin", stdin]);
    const boundary = crypto.randomUUID();
    const bytes = (text: string) => new TextEncoder().encode(text);
    const body = joined([
      ...parts.flatMap(([name, content]) => [
        bytes(`--${boundary}\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n`),
        typeof content === "string" ? bytes(content) : content,
        bytes("\r\n"),
      ]),
      bytes(`--${boundary}--\r\n`),
    ]);
    const collector = new Collector(options.outputLimit ?? 1 << 20, onStdout, onStderr);
    const archive: Uint8Array[] = [];
    const end = await this.outputs<types.RunResult>(
      "/v1/runs",
      {
        headers: { accept: "application/x-ndjson", "content-type": `multipart/form-data; boundary=${boundary}` },
        body,
        timeout: this.patience(timeout) + (milliseconds(margin) || defaultTimeout),
        signal,
      },
      (stream, data) =>
        stream === "files" ? archive.push(data) : collector.add(new Output(stream as "stdout" | "stderr", data)),
    );
    return new RunResult(await collector.end(), end.exec_id ?? "", end, end.lease, end.missing ?? [], joined(archive));
  }

  // Conditions.

  /** Sends a condition, such as game.finished, until it is stored. The webhook secret of the client signs it; without one, the
   * token needs the scope conditions. */
  async sendCondition(type: string, environment: string, options: ConditionOptions = {}): Promise<types.Receipt> {
    const { agentDid, generation, reason, at = new Date(), id = `msg_${crypto.randomUUID()}`, signal } = options;
    const data = defined<types.ConditionData>({
      environment_id: environment,
      agent_did: agentDid,
      generation,
      reason,
    } as types.ConditionData);
    const body = new TextEncoder().encode(JSON.stringify({ type, timestamp: at.toISOString(), data }));
    const headers = this.secret ? await sign(this.secret, id, body) : { "webhook-id": id };
    return this.call("POST", "/v1/conditions", { body, headers, signed: Boolean(this.secret), signal });
  }

  // Agents and probes.

  /** Forwards a request to an agent, and returns the agent's answer, whatever its status. */
  async askAgent(id: string, agent: string, path = "", request: AgentRequest = {}): Promise<Answer> {
    const { method = "GET", session, headers = {}, ...rest } = request;
    const below = path.replace(/^\/+/, "");
    if (/(^|[/\\])(\.|%2e){1,2}([/\\?#]|$)/i.test(below)) {
      throw new SandboxError("invalid", `path of an agent "${path}": must not have the segments . and ..`);
    }
    const answer = await this.open(method, `/v1/leases/${segment(id)}/agents/${segment(agent)}/${below}`, {
      ...rest,
      headers: session === undefined ? headers : { ...headers, "x-sandbox-session": session },
      timeout: this.slow,
      anyStatus: true,
    });
    if (answer.headers.get("content-type")?.startsWith("application/problem+json")) {
      throw await this.rejection(method, path, answer);
    }
    return answer;
  }

  /** Whether the reconciler is alive. */
  livez(options: CallOptions = {}): Promise<boolean> {
    return this.#probe("/livez", options);
  }

  /** Whether the reconciler is ready to work. */
  readyz(options: CallOptions = {}): Promise<boolean> {
    return this.#probe("/readyz", options);
  }

  async #probe(path: string, options: CallOptions): Promise<boolean> {
    const answer = await this.open("GET", path, { ...options, timeout: this.quick, anyStatus: true });
    await answer.bytes();
    return answer.status === 200;
  }

  /** Returns the reconciler's metrics in the text format of Prometheus. */
  async metrics(options: CallOptions = {}): Promise<string> {
    return (await this.open("GET", "/metrics", { ...options, timeout: this.quick })).text();
  }
}
