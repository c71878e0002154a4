import { SandboxError, type Code } from "./errors.js";
import type { Problem } from "./types.js";

/** Seconds, or a duration in Go syntax, such as "1m30s". */
export type Duration = number | string;

/** The content of a file or an archive. */
export type Content = string | Uint8Array<ArrayBuffer> | Blob | ReadableStream<Uint8Array<ArrayBuffer>>;

export interface CallOptions {
  /** Ends the call. */
  signal?: AbortSignal | undefined;
}

export interface ClientOptions {
  /** The reconciler. Default: SANDBOX_RECONCILER_URL. */
  url?: string;
  /** The bearer token. Default: SANDBOX_RECONCILER_TOKEN. */
  token?: string;
  /** Signs conditions instead of the token. */
  webhookSecret?: string;
  /** The maximum number of attempts of an idempotent request. Default: 5. */
  attempts?: number;
  /** The shortest and the longest wait between attempts, in seconds. Default: 0.2 and 10. */
  waitMin?: number;
  waitMax?: number;
  /** The limits of a request that only uses the ledger, and of one that waits for a backend, in seconds. Default: 60 and 900. */
  quickTimeout?: number;
  slowTimeout?: number;
  userAgent?: string;
  /** Sends requests in place of the global fetch, for example with another certificate authority. */
  fetch?: typeof fetch;
}

export type Query = Record<string, string | number | boolean | undefined>;

interface Sent extends CallOptions {
  query?: Query;
  headers?: Record<string, string>;
}

interface Call extends Sent {
  body?: unknown;
  slow?: boolean;
  once?: boolean;
  longer?: number;
  respondAsync?: boolean;
  signed?: boolean;
}

interface Opened extends Sent {
  body?: Content | undefined;
  /** How long to wait for the answer, in milliseconds. */
  timeout: number;
  anyStatus?: boolean;
  /** A signed request goes without the token: with a token, the reconciler reads no signature. */
  signed?: boolean;
}

/** A stream that carries nothing for this long, in milliseconds, is opened again. That is not a failure. */
export const idle = 60_000;

/** Returns text as one segment of a path. A path cannot hold some names, and no object has one of them. */
export function segment(text: string): string {
  if (text === "" || text === "." || text === "..") {
    throw new SandboxError("not_found", `nothing has the name "${text}"`);
  }
  return encodeURIComponent(text);
}

const units: Record<string, number> = { h: 3_600_000, m: 60_000, s: 1000, ms: 1, us: 1e-3, "µs": 1e-3, ns: 1e-6 };

/** Returns a duration in milliseconds, 0 for none. The reconciler checks it. */
export function milliseconds(duration: Duration | undefined): number {
  if (typeof duration !== "string") return (duration ?? 0) * 1000;
  let sum = 0;
  for (const [, count, unit] of duration.matchAll(/([0-9.]+)(h|ms|m|s|us|µs|ns)/g)) {
    sum += Number(count) * (units[unit ?? ""] ?? 0);
  }
  return sum;
}

/** Returns a duration in Go syntax. */
export function goDuration(duration: Duration): string {
  return typeof duration === "string" ? duration : `${duration}s`;
}

/** Returns the object without the fields that are undefined. */
export function defined<T extends object>(object: { [K in keyof T]: T[K] | undefined }): T {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined)) as T;
}

export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** An open answer. Read it to its end, or close it. */
export class Answer {
  readonly status: number;
  readonly headers: Headers;

  constructor(
    private readonly response: Response,
    private readonly controller: AbortController,
    private readonly broken: (error: unknown) => unknown,
    private readonly ended: () => void,
  ) {
    this.status = response.status;
    this.headers = response.headers;
  }

  /** Yields the content as it arrives. A broken connection is an error. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array<ArrayBuffer>, void, void> {
    if (this.response.body === null) return this.ended();
    const reader = this.response.body.getReader();
    let done = false;
    try {
      for (;;) {
        const timer = setTimeout(() => this.controller.abort(new Error("the stream is idle")), idle);
        let piece;
        try {
          piece = await reader.read();
        } catch (error) {
          done = true;
          throw this.broken(error);
        } finally {
          clearTimeout(timer);
        }
        if (piece.done) {
          done = true;
          return;
        }
        yield piece.value;
      }
    } finally {
      if (!done) this.close();
      this.ended();
    }
  }

  /** Yields whole lines without their ends. */
  async *lines(): AsyncGenerator<string, void, void> {
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    let rest = "";
    for await (const piece of this) {
      const lines = (rest + decoder.decode(piece, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      yield* lines;
    }
  }

  /** Returns the whole content. */
  async bytes(): Promise<Uint8Array<ArrayBuffer>> {
    const pieces: Uint8Array<ArrayBuffer>[] = [];
    for await (const piece of this) pieces.push(piece);
    return joined(pieces);
  }

  async text(): Promise<string> {
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(await this.bytes());
  }

  /** The content as a stream. */
  get body(): ReadableStream<Uint8Array<ArrayBuffer>> {
    const pieces = this[Symbol.asyncIterator]();
    return new ReadableStream({
      async pull(controller) {
        const { done, value } = await pieces.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      async cancel() {
        await pieces.return();
      },
    });
  }

  /** Breaks the connection unless the answer was read to its end. */
  close(): void {
    this.controller.abort(new Error("the answer is closed"));
    this.ended();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}

export function joined(pieces: Uint8Array[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(pieces.reduce((n, piece) => n + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

/** Sends requests to one reconciler. */
export class Transport {
  protected readonly quick: number;
  protected readonly slow: number;
  protected readonly secret: string | undefined;
  readonly #base: string;
  readonly #token: string | undefined;
  readonly #options: Required<Pick<ClientOptions, "attempts" | "waitMin" | "waitMax" | "userAgent">>;
  readonly #fetch: typeof fetch;

  constructor(options: ClientOptions = {}) {
    const env = (globalThis as { process?: { env?: Record<string, string | undefined> } }).process?.env ?? {};
    const text = options.url ?? env["SANDBOX_RECONCILER_URL"] ?? "";
    const url = URL.canParse(text) ? new URL(text) : undefined;
    if (url === undefined || !/^https?:$/.test(url.protocol)) {
      throw new SandboxError(
        "invalid",
        `reconciler URL "${text}": must be http:// or https:// and a host; set SANDBOX_RECONCILER_URL or the option url`,
      );
    }
    if (url.username || url.password || url.search || url.hash) {
      throw new SandboxError("invalid", `reconciler URL of host ${url.host}: must hold no user, query or fragment`);
    }
    this.#token = options.token ?? env["SANDBOX_RECONCILER_TOKEN"];
    this.secret = options.webhookSecret;
    if (!this.#token && !this.secret) {
      throw new SandboxError("invalid", `reconciler ${text}: no token; set SANDBOX_RECONCILER_TOKEN or the option token`);
    }
    this.#base = url.href.replace(/\/+$/, "");
    this.quick = (options.quickTimeout ?? 60) * 1000;
    this.slow = (options.slowTimeout ?? 900) * 1000;
    this.#options = {
      attempts: options.attempts ?? 5,
      waitMin: options.waitMin ?? 0.2,
      waitMax: options.waitMax ?? 10,
      userAgent: options.userAgent ?? "sandbox-lease-typescript",
    };
    this.#fetch = options.fetch ?? ((input, init) => fetch(input, init));
  }

  /** Sends any request once, for what this package does not cover. A status that is not 2xx is an error. */
  request(
    method: string,
    path: string,
    request: Sent & { body?: Content; timeout?: number } = {},
  ): Promise<Answer> {
    return this.open(method, path, { ...request, timeout: request.timeout ?? this.slow });
  }

  /** Sends a request with JSON, again if it may be repeated, and returns the answer. */
  protected async call<T>(method: string, path: string, call: Call): Promise<T> {
    const headers: Record<string, string> = { accept: "application/json", ...call.headers };
    let body: Content | undefined;
    if (call.body !== undefined) {
      headers["content-type"] = "application/json";
      body = call.body instanceof Uint8Array ? (call.body as Uint8Array<ArrayBuffer>) : JSON.stringify(call.body);
    }
    if (call.respondAsync) headers["prefer"] = "respond-async";
    const deadline = Date.now() + (call.slow ? this.slow : this.quick) + (call.longer ?? 0);
    for (let failures = 0; ; failures++) {
      try {
        const left = () => Math.max(deadline - Date.now(), 1);
        const answer = await this.open(method, path, { ...call, headers, body, timeout: left() });
        const timer = setTimeout(() => answer.close(), left());
        const text = await answer.text().finally(() => clearTimeout(timer));
        try {
          return (text === "" ? undefined : JSON.parse(text)) as T;
        } catch (error) {
          throw this.lost(method, path, error);
        }
      } catch (error) {
        if (!(error instanceof SandboxError) || !repeats(error, call.once ?? false)) throw error;
        const wait = this.backoff(failures, error);
        if (failures + 1 >= this.#options.attempts || Date.now() + wait >= deadline) throw error;
        await sleep(wait, call.signal);
      }
    }
  }

  /** Returns how long to wait after the nth failure, from 0, in milliseconds. */
  protected backoff(n: number, error: SandboxError): number {
    return Math.min(error.retryAfter ?? this.#options.waitMin * 2 ** n, this.#options.waitMax) * 1000;
  }

  /** Returns how often a stream has failed in a row without progress. Too often is an error. A stream that was open for
   * long has not failed. */
  protected failedAgain(error: unknown, failures: number, progress: boolean, began: number): number {
    if (!(error instanceof SandboxError) || !error.retryable) throw error;
    failures = progress || Date.now() - began >= idle / 2 ? 0 : failures + 1;
    if (failures >= this.#options.attempts) throw error;
    return failures;
  }

  /** Sends a request once. */
  protected async open(method: string, path: string, request: Opened): Promise<Answer> {
    const { signal } = request;
    signal?.throwIfAborted();
    const controller = new AbortController();
    const abort = () => controller.abort(signal?.reason);
    signal?.addEventListener("abort", abort, { once: true });
    const ended = () => signal?.removeEventListener("abort", abort);
    const broken = (error: unknown) => (signal?.aborted ? signal.reason : this.lost(method, path, error));
    const timer = setTimeout(() => controller.abort(new Error("no answer in time")), request.timeout);
    const headers = new Headers({ "user-agent": this.#options.userAgent, ...request.headers });
    if (this.#token && !request.signed) headers.set("authorization", `Bearer ${this.#token}`);
    const init: RequestInit & { duplex?: "half" } = { method, headers, redirect: "manual", signal: controller.signal };
    if (request.body !== undefined) init.body = request.body;
    if (request.body instanceof ReadableStream) init.duplex = "half";
    let response;
    try {
      response = await this.#fetch(this.#base + path + queryOf(request.query), init);
    } catch (error) {
      ended();
      throw broken(error);
    } finally {
      clearTimeout(timer);
    }
    const answer = new Answer(response, controller, broken, ended);
    if (!request.anyStatus && !response.ok) throw await this.rejection(method, path, answer);
    return answer;
  }

  protected async rejection(method: string, path: string, answer: Answer): Promise<SandboxError> {
    const { status, headers } = answer;
    const location = headers.get("location");
    if (location !== null && status < 400) {
      answer.close();
      return new SandboxError(
        "unavailable",
        `reconciler ${this.#base} redirects to ${location}: use that URL if it is a reconciler`,
        { status },
      );
    }
    const more = { status, retryAfter: retryAfter(headers.get("retry-after")) };
    const requestId = headers.get("x-request-id") ?? undefined;
    try {
      const problem = JSON.parse(await answer.text()) as Problem;
      if (problem.code) return SandboxError.of(problem, { ...more, requestId: problem.request_id ?? requestId });
    } catch {
      // It is not a problem document.
    }
    let code: Code = "unavailable";
    if (status === 401 || status === 407) code = "unauthenticated";
    if (status === 403) code = "forbidden";
    if ((status === 502 || status === 504) && method !== "GET") code = "unknown_outcome"; // a proxy had forwarded it
    return new SandboxError(
      code,
      `reconciler ${this.#base}: the response to ${method} ${path} is ${status}, but not from a reconciler: check the URL ` +
        "and proxies",
      { ...more, requestId },
    );
  }

  /** Returns the error of a request without a complete answer. */
  protected lost(method: string, path: string, cause: unknown): SandboxError {
    const under = (cause as { cause?: { code?: string; message?: string } } | undefined)?.cause;
    const text = under?.message || (cause instanceof Error ? cause.message : String(cause));
    const untrusted = /CERT|SELF_SIGNED|ISSUER/.test(under?.code ?? "");
    const unsent = untrusted || unsentCodes.has(under?.code ?? "");
    const about = `reconciler ${this.#base}: ${method} ${path}: ${text}`;
    if (method !== "GET" && !unsent) {
      return new SandboxError("unknown_outcome", `${about}: it may have succeeded: check before you retry`, { cause });
    }
    const advice = untrusted
      ? "its certificate is not trusted here: name the file with its authority in NODE_EXTRA_CA_CERTS"
      : "check that the reconciler runs and that the URL is right";
    return new SandboxError("unavailable", `${about}: ${advice}`, { cause, unsent, permanent: untrusted });
  }
}

const unsentCodes = new Set([
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "UND_ERR_CONNECT_TIMEOUT",
]);

/** Reports whether a request is sent again after an error. */
function repeats(error: SandboxError, once: boolean): boolean {
  if (error.permanent) return false;
  if (once) return error.status === 429 || error.status === 503 || error.unsent;
  if (error.status !== undefined) return [429, 502, 503, 504].includes(error.status);
  return error.code === "unavailable" || error.code === "unknown_outcome";
}

function retryAfter(value: string | null): number | undefined {
  if (!value) return undefined;
  if (/^\d+$/.test(value)) return Number(value);
  const at = Date.parse(value);
  return Number.isNaN(at) ? undefined : Math.max(at - Date.now(), 0) / 1000;
}

function queryOf(query: Query = {}): string {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== false && value !== "");
  const text = pairs.map(([name, value]) => `${name}=${typeof value === "string" ? encoded(value) : value}`).join("&");
  return text && "?" + text;
}

/** Percent-encodes text. Names of files are bytes, not always UTF-8: U+DC80 to U+DCFF stand for other bytes. */
function encoded(text: string): string {
  return text
    .split(/([\udc80-\udcff])/)
    .map((part) => (/^[\udc80-\udcff]$/.test(part) ? "%" + (part.charCodeAt(0) - 0xdc00).toString(16) : encodeURIComponent(part)))
    .join("");
}
