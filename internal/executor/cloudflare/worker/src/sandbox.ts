// The Durable Object of one sandbox. It holds the sandbox's deadline, and its alarm ends the container whoever
// else is away.

import { DurableObject } from "cloudflare:workers";

import { Box } from "./container";
import type { Env } from "./env";
import { asFailure, Failure, text } from "./errors";
import { Helper, parseCall } from "./helper";
import { parsePath, type Path } from "./path";
import { parseSettings, type Settings } from "./settings";
import { authenticate, Chunks, wholeBody } from "./signature";
import { type Cause, type Row, Store } from "./store";

export class Sandbox extends DurableObject<Env> {
  private readonly store: Store;
  private readonly box: Box;
  // turn is the end of the last call that changes what the container does: the next one waits for it.
  private turn: Promise<unknown> = Promise.resolve();

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    if (ctx.container === undefined) throw new Error("this Durable Object was deployed without a container");
    this.store = new Store(ctx.storage.sql);
    this.box = new Box(ctx.container, this.store, Date.now);
    this.box.resume();
    this.store.endAttendedRuns(); // a Durable Object that is thrown out of memory breaks every connection
  }

  override async fetch(request: Request): Promise<Response> {
    try {
      return await this.route(request);
    } catch (error) {
      return asFailure(error).response();
    }
  }

  private async route(request: Request): Promise<Response> {
    const signed = await authenticate(request, this.env.SIGNING_KEY, Date.now());
    const path = parsePath(request);
    switch (`${request.method} ${path.verb}`) {
      case "PUT ":
        return this.spawn(path, parseSettings(await wholeBody(request, signed)));
      case "GET ":
        return this.view(path);
      case "DELETE ":
        return this.inTurn(() => this.kill());
      case "POST sleep":
        return this.inTurn(() => this.sleep(path));
      case "POST wake":
        return this.inTurn(() => this.wake(path));
      case "POST run":
        return this.run(path, new Chunks(request, signed));
      case "GET periods":
        return Response.json({ periods: this.store.periods() });
      default:
        throw new Failure("invalid", `there is no ${request.method} ${path.verb}`);
    }
  }

  // alarm ends what is due. It is called again when it fails, and may come early or late.
  override async alarm(): Promise<void> {
    await this.inTurn(async () => {
      const due = this.due();
      if (due !== null && due.at <= Date.now()) await this.box.stop(due.cause);
      const purgeAt = this.store.purgeAt();
      if (purgeAt !== null && purgeAt <= Date.now()) this.store.purge();
      await this.arm();
    });
  }

  private spawn(path: Path, settings: Settings): Promise<Response> {
    return this.inTurn(async () => {
      const row = this.store.row();
      const last = this.store.lastPeriod();
      if (row !== null && !this.box.running && (row.ready || last?.cause === "start_failed")) {
        throw new Failure("failed", `sandbox ${path.sandbox}: it was made before and has stopped (${last?.cause})`, "sandbox_start_failed");
      }
      if (row?.ready) return this.view(path);
      // Nobody has made it, or whoever did was reset before it was ready.
      if (row === null) this.store.create(settings, Date.now());
      await this.box.stop("start_failed");
      try {
        await this.start(path, row?.settings ?? settings);
      } catch (error) {
        // What failed for good is left for a kill; what may go better next time is made anew.
        if (asFailure(error).code !== "failed") this.store.remove(Date.now());
        throw error;
      }
      this.store.setReady();
      return this.view(path);
    });
  }

  private async sleep(path: Path): Promise<Response> {
    this.find(path);
    await this.box.stop("sleep");
    await this.arm();
    return this.view(path);
  }

  private async wake(path: Path): Promise<Response> {
    const { settings } = this.find(path);
    if (!this.box.running) await this.start(path, settings);
    return this.view(path);
  }

  private async kill(): Promise<Response> {
    await this.box.stop("kill");
    if (this.store.row() !== null) this.store.remove(Date.now());
    await this.arm();
    return Response.json({ periods: this.store.periods() });
  }

  private async run(path: Path, chunks: Chunks): Promise<Response> {
    this.find(path);
    const call = parseCall(await chunks.next());
    const { settings } = this.find(path); // it may have been killed since
    if (!this.box.running || settings.deadline <= Date.now()) {
      throw new Failure("conflict", `sandbox ${path.sandbox}: it is asleep`, "sandbox_invalid_state");
    }
    const id = crypto.randomUUID();
    this.store.use(Date.now());
    this.store.startRun(id, Date.now() + call.limit_ms, call.detached);
    let helper: Helper;
    try {
      helper = await Helper.start(this.container(), call);
    } catch (error) {
      this.store.endRun(id);
      throw this.notRun(path, error);
    }
    const ended = helper.ended.then(() => this.endRun(id));
    const left = helper.feed(chunks).then(() => (call.detached ? undefined : this.endRun(id)));
    this.ctx.waitUntil(Promise.all([ended, left]));
    return new Response(helper.output, { headers: { "Content-Type": "application/octet-stream", "X-Sandbox-Incarnation": String(this.incarnation()) } });
  }

  private async endRun(id: string): Promise<void> {
    if (!this.store.endRun(id)) return;
    this.store.use(Date.now());
    await this.arm();
  }

  // notRun says why the container did not run the guest.
  private notRun(path: Path, error: unknown): Failure {
    if (this.store.row() === null) return absent(path);
    if (!this.box.running) return new Failure("conflict", `sandbox ${path.sandbox}: it has stopped: ${text(error)}`, "sandbox_invalid_state");
    return new Failure("unknown_outcome", `sandbox ${path.sandbox}: run the guest: ${text(error)}`, "sandbox_exec_failed");
  }

  private async start(path: Path, settings: Settings): Promise<void> {
    const now = Date.now();
    const due = this.ended(now);
    if (due !== null) throw new Failure("failed", `sandbox ${path.sandbox}: it does not start any more: ${due} has passed`, "sandbox_start_failed");
    this.store.use(now);
    await this.ctx.storage.setAlarm(settings.deadline); // first, so that what is started is ended
    await this.box.start(settings, {
      ledger: path.ledger,
      sandbox: path.sandbox,
      environment: settings.environment_id,
      lease: settings.lease_id,
      generation: String(settings.generation),
    });
    this.store.use(Date.now());
    await this.arm();
  }

  // ended names the limit that has ended the sandbox for good; null while none has.
  private ended(now: number): "its deadline" | "its ttl" | null {
    const row = this.store.row();
    if (row === null) return null;
    const { deadline, ttl_ms } = row.settings;
    if (deadline <= now) return "its deadline";
    return ttl_ms > 0 && row.used_at + ttl_ms <= now ? "its ttl" : null;
  }

  // due says what ends the container next, and when.
  private due(): { at: number; cause: Cause } | null {
    const row = this.store.row();
    if (row === null || !this.box.running) return null;
    const { deadline, ttl_ms, sleep_after_ms } = row.settings;
    const used = Math.max(row.used_at, this.store.busyUntil(Date.now()));
    let next: { at: number; cause: Cause } = { at: deadline, cause: "deadline" };
    if (ttl_ms > 0 && used + ttl_ms < next.at) next = { at: used + ttl_ms, cause: "ttl" };
    if (sleep_after_ms > 0 && used + sleep_after_ms < next.at) next = { at: used + sleep_after_ms, cause: "idle" };
    return next;
  }

  // arm sets the alarm to what is due next. While commands run it comes at the pace of the idle limits, so that
  // the end of a command whose end is never heard of is seen then.
  private async arm(): Promise<void> {
    const at = this.due()?.at ?? this.store.purgeAt();
    if (at === null) {
      await this.ctx.storage.deleteAlarm();
      return;
    }
    const { ttl_ms = 0, sleep_after_ms = 0 } = this.store.row()?.settings ?? {};
    const limits = [ttl_ms, sleep_after_ms].filter((ms) => ms > 0 && this.box.running);
    await this.ctx.storage.setAlarm(Math.min(at, ...limits.map((ms) => Date.now() + ms)));
  }

  private view(path: Path): Response {
    const row = this.find(path);
    const last = this.store.lastPeriod();
    return Response.json({
      settings: row.settings,
      state: this.box.running && last?.stopped_at === null ? "running" : "stopped",
      created_at: row.created_at,
      used_at: row.used_at,
      period: last,
    });
  }

  private find(path: Path): Row {
    const row = this.store.row();
    if (row === null) throw absent(path);
    return row;
  }

  private incarnation(): number {
    return this.store.lastPeriod()?.incarnation ?? 0;
  }

  private container(): Container {
    if (this.ctx.container === undefined) throw new Error("unreachable: the constructor has checked");
    return this.ctx.container;
  }

  private inTurn<T>(act: () => Promise<T>): Promise<T> {
    const mine = this.turn.then(act);
    this.turn = mine.catch(() => undefined); // its caller is told
    return mine;
  }
}

function absent(path: Path): Failure {
  return new Failure("not_found", `sandbox ${path.sandbox} does not exist`, "sandbox_not_found");
}
