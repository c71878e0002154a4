// The LLM calls of one sandbox. Its Durable Object makes them, so that a call ends together with the object that
// settles it. internal/gateway/llm/serve.go does the same on Docker.

import type { Who } from "../attempts";
import { text } from "../errors";
import { inTime } from "../wait";
import { type Book, type Call, type Outcome } from "./book";
import { answerHeaders, sessionOf, upstreamHeaders } from "./header";
import { refusalOf } from "./limits";
import { costOf, noTokens, totalOf } from "./price";
import { listModels, Refused, refuse, unavailable } from "./refusal";
import { check, type Checked, type Dialect, endpoints } from "./request";
import type { Api, LLMSettings, Route } from "./settings";
import { Meter } from "./usage";

// modelsHost is the host that sandboxes call models at: http://HOST/llm/ROUTE/v1/… (internal/executor/cloudflare/llm.go).
export const modelsHost = "llm.sandbox.internal";

// Caller identifies the sandbox that calls, and its lease.
export interface Caller extends Who {
  lease: string;
  generation: number;
}

// maxBody limits one request body, in bytes. maxBodies limits the bodies of a sandbox that its object holds at the same
// time, until their upstreams have answered. A Durable Object has 128 MB.
const maxBody = 8 << 20;
const maxBodies = 16 << 20;

// maxCalls limits the concurrent calls of a sandbox.
const maxCalls = 128;

// idle limits the time without any byte from an upstream, or without progress of a client, in milliseconds. A model may
// think for a long time.
const idle = 15 * 60_000;

// maxErrorBody limits the body of an upstream's error, in bytes.
const maxErrorBody = 256 << 10;

// undecided are the statuses of Cloudflare's answer if the host got the request but gave no answer. The host may have
// billed the call (developers.cloudflare.com/support/troubleshooting/http-status-codes, read 2026-11).
const undecided = [520, 524];

// retryPause is the pause before a failed write of an end is retried. closeLimit is how long the end of a sandbox waits
// for the ends of its calls. Both are in milliseconds.
const retryPause = 5000;
const closeLimit = 10_000;

// Load is what a call takes of its object's memory until its upstream has answered, in bytes.
interface Load {
  id: string;
  bytes: number;
}

// Exchange is a running call. It does not hold the body, because an answer may take long.
interface Exchange {
  call: Call;
  checked: Omit<Checked, "body">;
  route: Route;
  dialect: Dialect;
  cut: AbortController;
  // gone resolves once the journal has the end.
  gone: Promise<void>;
  settle: () => void;
  ended: boolean;
}

// End is the end of a call for the journal. counted is the number of tokens that count towards limits.
interface End {
  ledger: string;
  call: Call;
  counted: number;
  x: Exchange;
}

export class Calls {
  // running has each call from its arrival until the journal has its end; null before it is recorded. If the journal has
  // a running call that is not here, an earlier object lost it.
  private readonly running = new Map<string, Exchange | null>();
  private waiting: End[] = [];
  private retrying: Promise<void> | null = null;
  // bodies is the sum of all loads.
  private bodies = 0;

  constructor(
    private readonly book: Book,
    private readonly keys: () => string[],
    private readonly now: () => number,
    private readonly hold: (p: Promise<unknown>) => void,
  ) {}

  // serve answers one request of the sandbox.
  async serve(who: Caller, request: Request): Promise<Response> {
    const { pathname, search } = new URL(request.url);
    const [, name = "", path = "/"] = /^\/llm\/([^/]*)(\/.*)?$/.exec(pathname) ?? [];
    let api: Api = request.headers.has("Anthropic-Version") || path.startsWith("/v1/messages") ? "anthropic" : "openai";
    try {
      const settings = await this.settings(who);
      const route = routeOf(settings, name);
      api = route.api;
      if (path === "/v1/models" && request.method === "GET") return listModels(route);
      const dialect = dialectOf(route, name, request.method, path);
      const load = this.admit(request);
      try {
        const { body, ...checked } = check(await bodyOf(request), route, name, dialect);
        this.weigh(load, body.length);
        const x = await this.begin(who, load.id, request, name, route, dialect, checked, settings);
        const query = api === "anthropic" && search === "?beta=true" ? search : "";
        return await this.send(who, x, request.headers, body, `${route.upstream}${path}${query}`, settings.account);
      } finally {
        this.weigh(load, 0); // the upstream has answered, or will not
        if (this.running.get(load.id) === null) this.running.delete(load.id);
      }
    } catch (error) {
      if (error instanceof Refused) return error.response(api);
      console.error(`call a model: ${text(error)}`);
      return refuse(503, "journal_failed", "the call failed in the Worker").response(api);
    }
  }

  private async settings({ ledger, environment }: Caller): Promise<LLMSettings> {
    let settings: LLMSettings | null;
    try {
      settings = await this.book.settings(ledger, environment, this.keys());
    } catch (error) {
      console.error(`read the LLM routes: ${text(error)}`);
      throw unavailable("the LLM routes cannot be read: try again").again(1);
    }
    if (settings !== null) return settings;
    throw unavailable("there are no LLM routes yet: the service that manages this environment sets them when it runs");
  }

  // admit counts a call that arrives, and its body, before it waits for anything: many calls may arrive together.
  private admit(request: Request): Load {
    const length = Number(request.headers.get("Content-Length") ?? maxBody);
    const told = Number.isSafeInteger(length) && length >= 0 ? length : maxBody;
    if (told > maxBody) throw tooLarge();
    if (this.bodies + told > maxBodies || this.running.size >= maxCalls) {
      throw refuse(503, "busy", "the sandbox has too many calls under way: try again").again(1);
    }
    const load = { id: crypto.randomUUID(), bytes: 0 };
    this.weigh(load, told);
    this.running.set(load.id, null);
    return load;
  }

  private weigh(load: Load, bytes: number): void {
    this.bodies += bytes - load.bytes;
    load.bytes = bytes;
  }

  // begin reserves what the call can use, and records the beginning of the call.
  private async begin(
    who: Caller, id: string, request: Request, name: string, route: Route, dialect: Dialect, checked: Exchange["checked"],
    settings: LLMSettings,
  ): Promise<Exchange> {
    const call: Call = {
      id,
      environment_id: who.environment,
      lease_id: who.lease,
      generation: who.generation,
      sandbox_id: who.sandbox,
      agent_did: who.agent,
      route: name,
      model: checked.model,
      session: sessionOf(request.headers),
      started_at: this.now(),
      ended_at: 0,
      outcome: "running",
      status: 0,
      tokens: noTokens,
      cost: checked.cost,
      unknown: false,
    };
    if (settings.cap !== null && settings.cap <= 0) throw refusalOf([], name, route, settings);
    let settle = () => {};
    const gone = new Promise<void>((resolve) => (settle = resolve));
    const x = { call, checked, route, dialect, cut: new AbortController(), gone, settle, ended: false };
    this.running.set(id, x);
    let refused: Awaited<ReturnType<Book["admit"]>>;
    try {
      refused = await this.book.admit(who.ledger, call, totalOf(checked.most), route, settings);
    } catch (error) {
      console.error(`record a call: ${text(error)}`);
      await this.end(who.ledger, x, "unsent", null); // the record may exist
      throw refuse(503, "journal_failed", "the call cannot be recorded, so it was not sent: try again").again(1);
    }
    if (refused === null) return x;
    this.forget(x);
    if (refused !== "full") throw refusalOf(refused, name, route, settings);
    const message = "the journal of LLM calls is full, because the service that manages this environment has not read it";
    throw refuse(503, "journal_full", `${message}: start it`);
  }

  // send sends the request, and passes the answer on.
  private async send(
    who: Caller, x: Exchange, from: Headers, body: Uint8Array, url: string, account: string,
  ): Promise<Response> {
    const end = (outcome: Outcome, meter: Meter | null) => this.end(who.ledger, x, outcome, meter);
    const { call, cut, route } = x;
    let upstream: Request;
    try {
      const headers = upstreamHeaders(from, route, account, call);
      upstream = new Request(url, { method: "POST", headers, body, redirect: "manual", signal: cut.signal });
      if (cut.signal.aborted) throw new Error("the sandbox ends");
    } catch (error) {
      await end("unsent", null);
      throw refuse(502, "upstream_unreachable", `the request could not be made: ${text(error)}`);
    }
    const watch = new Watch(() => cut.abort(`the upstream sent nothing within ${idle / 60_000} minutes`));
    let passing = false;
    try {
      // No cache may answer instead of the host.
      const response = await fetch(upstream, { cache: "no-store" });
      watch.reset();
      call.status = response.status;
      if (undecided.includes(response.status)) throw new Error(`the platform answers ${response.status} in its place`);
      if (response.status >= 400) return await reject(response, route.key, () => end("rejected", null));
      if (response.status < 200 || response.status >= 300) {
        await end("rejected", null);
        const message = `the upstream answered with status ${response.status}, but the gateway follows no redirects`;
        throw refuse(502, "upstream_redirect", `${message}: check the route's upstream`);
      }
      passing = true;
      return this.pass(x, response, watch, end);
    } catch (error) {
      if (error instanceof Refused) throw error;
      await end("interrupted", null); // whether the host got the request is unknown
      const why = cut.signal.aborted ? text(cut.signal.reason) : text(error);
      const message = `the upstream of route ${call.route} gave no answer: ${why}. The call may have been billed`;
      throw refuse(cut.signal.aborted ? 504 : 502, "upstream_failed", message).once();
    } finally {
      if (!passing) watch.stop(); // a pending timer keeps the Durable Object in memory
    }
  }

  // pass passes an answer on as it arrives, and ends the call.
  private pass(
    x: Exchange, response: Response, watch: Watch, end: (outcome: Outcome, meter: Meter | null) => Promise<void>,
  ): Response {
    const type = (response.headers.get("Content-Type") ?? "").split(";")[0]?.trim().toLowerCase() ?? "";
    const stream = type === "text/event-stream" || (type === "" && x.checked.stream);
    const meter = new Meter(x.dialect, stream, x.checked.hide);
    const length = stream || response.headers.has("Content-Encoding") ? null : response.headers.get("Content-Length");
    // With a length, the client notices if the answer is cut off.
    const { readable, writable } = length === null ? new IdentityTransformStream() : new FixedLengthStream(Number(length));
    const writer = writable.getWriter();
    const cut = (why: unknown) => x.cut.abort(text(why));
    writer.closed.catch(cut); // the client has left
    x.cut.signal.addEventListener("abort", () => void writer.abort(x.cut.signal.reason).catch(() => undefined));
    const pump = async () => {
      try {
        const reader = response.body?.getReader();
        for (let done = false; !done; ) {
          const piece = (await reader?.read()) ?? { done: true, value: undefined };
          watch.reset();
          done = piece.done;
          const out = piece.value === undefined ? [] : [meter.write(piece.value)];
          const { rest, whole } = done ? meter.end() : { rest: new Uint8Array(), whole: false };
          // The answer is complete, even if the client does not wait for it. The journal gets its end before the client
          // does.
          if (meter.done || whole) await end("completed", meter);
          for (const bytes of [...out, rest]) if (bytes.length > 0) await writer.write(bytes);
        }
        await end("interrupted", meter); // no effect if it has ended
        await writer.close();
      } catch (error) {
        await end("interrupted", meter);
        cut(error);
      } finally {
        watch.stop();
      }
    };
    this.hold(pump());
    return new Response(readable, { status: response.status, headers: answerHeaders(response.headers) });
  }

  // end records the end of a call, once. meter is null if no usage was read.
  private async end(ledger: string, x: Exchange, outcome: Outcome, meter: Meter | null): Promise<void> {
    if (x.ended) return;
    x.ended = true;
    const { checked, dialect } = x;
    const call = { ...x.call, outcome, ended_at: this.now() };
    const model = x.route.models[call.model];
    if (meter !== null && !meter.bad) call.tokens = meter.tokens;
    let counted = Math.max(totalOf(call.tokens), totalOf(checked.most));
    if (outcome === "rejected" || outcome === "unsent" || dialect === "counting") {
      [call.tokens, call.cost, counted] = [noTokens, 0, 0];
    } else if (meter?.known && model !== undefined) {
      [call.cost, counted] = [costOf(model, call.tokens), totalOf(call.tokens)];
    } else {
      call.unknown = true; // it costs what it reserved
      if (meter?.seen && !meter.bad && dialect === "messages" && outcome === "interrupted" && model !== undefined) {
        const most = { ...call.tokens, output: Math.max(call.tokens.output, checked.most.output) }; // the input is final
        [call.cost, counted] = [costOf(model, most), totalOf(most)];
      }
    }
    const mine = { ledger, call, counted, x };
    this.waiting.push(mine);
    await this.write([mine]); // only this one, because the ends of many calls may come together
  }

  // write writes ends. It retries all failed writes while this object lives. If this object ends first, the next one
  // finds the calls still running in the journal, and settles them at what they reserve.
  private async write(ends: End[]): Promise<void> {
    for (const end of ends) {
      try {
        await this.book.end(end.ledger, end.call, end.counted);
      } catch (error) {
        console.error(`record the end of a call: ${text(error)}`);
        this.retrying ??= scheduler.wait(retryPause).then(() => {
          this.retrying = null;
          return this.write([...this.waiting]);
        });
        this.hold(this.retrying);
        return;
      }
      this.waiting = this.waiting.filter((other) => other !== end);
      this.forget(end.x);
    }
  }

  private forget(x: Exchange): void {
    this.running.delete(x.call.id);
    x.settle();
  }

  // close ends all calls, because the sandbox ends.
  async close(why: string): Promise<void> {
    const all = [...this.running.values()].filter((x) => x !== null);
    for (const { cut } of all) cut.abort(why);
    if (all.length > 0) await inTime(Promise.all(all.map(({ gone }) => gone)), closeLimit, "the journal").catch(() => undefined);
  }

  // tidy settles the calls that an earlier object of the sandbox left running, at what they reserve.
  async tidy({ ledger, environment, sandbox }: Pick<Who, "ledger" | "environment" | "sandbox">): Promise<void> {
    for (const { call, reserved } of await this.book.running(ledger, environment, sandbox)) {
      if (this.running.has(call.id)) continue;
      await this.book.end(ledger, { ...call, outcome: "interrupted", unknown: true, ended_at: this.now() }, reserved);
    }
  }

  // remove tidies up after a sandbox that has ended for good.
  async remove(who: Who): Promise<void> {
    await this.tidy(who);
    await this.book.forget(who.ledger, who.environment, who.sandbox);
  }
}

function routeOf({ routes }: LLMSettings, name: string): Route {
  const route = Object.hasOwn(routes, name) ? routes[name] : undefined;
  if (route !== undefined) return route;
  const have = Object.keys(routes).sort().join(", ") || "none";
  throw refuse(404, "unknown_route", `there is no LLM route ${JSON.stringify(name.slice(0, 64))}: the environment has ${have}`);
}

function dialectOf({ api }: Route, name: string, method: string, path: string): Dialect {
  const known = endpoints[api];
  const dialect = method === "POST" && Object.hasOwn(known, path) ? known[path] : undefined;
  if (dialect !== undefined) return dialect;
  const have = [...Object.keys(known).map((p) => `POST ${p}`), "GET /v1/models"].join(", ");
  const what = `${method.slice(0, 16)} ${path.slice(0, 128)}`;
  throw refuse(404, "unknown_endpoint", `${what} is not supported: route ${name} (${api}) has ${have}`);
}

function tooLarge(): Refused {
  return refuse(413, "too_large", `the body has more than ${maxBody >> 20} MiB`);
}

async function bodyOf(request: Request): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const piece of request.body ?? []) {
      pieces.push(piece);
      size += piece.length;
      if (size > maxBody) throw tooLarge();
    }
  } catch (error) {
    throw error instanceof Refused ? error : refuse(400, "invalid", "the body could not be read to its end");
  }
  return joined(pieces);
}

function joined(pieces: Uint8Array[]): Uint8Array {
  const all = new Uint8Array(pieces.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

// reject passes an upstream's error on. The error may repeat the key, which the sandbox must not get.
async function reject(response: Response, key: string, end: () => Promise<void>): Promise<Response> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const piece of response.body ?? []) {
      pieces.push(piece);
      if ((size += piece.length) >= maxErrorBody) break;
    }
  } catch {
    // the sandbox gets what has arrived
  }
  await end();
  const said = new TextDecoder().decode(joined(pieces).subarray(0, maxErrorBody)).replaceAll(key, "(key)");
  return new Response(said, { status: response.status, headers: answerHeaders(response.headers) });
}

// Watch calls act if nothing resets it for the idle time.
class Watch {
  private timer: ReturnType<typeof setTimeout>;

  constructor(private readonly act: () => void) {
    this.timer = setTimeout(act, idle);
  }

  reset(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(this.act, idle);
  }

  stop(): void {
    clearTimeout(this.timer);
  }
}
