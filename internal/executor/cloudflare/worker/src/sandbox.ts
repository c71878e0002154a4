// The Durable Object of one sandbox. It holds the sandbox's deadline, and its alarm ends the container whoever
// else is away.

import { DurableObject } from "cloudflare:workers";

import { Box, timesOf, type Times as Pace } from "./container";
import { Copy, type Lease, type LeaseStatus } from "./copy";
import { Data } from "./data";
import type { Env } from "./env";
import { asFailure, Failure, readOff, startFailure, text } from "./errors";
import { cpuOf, type Result } from "./frames";
import { Helper, type HelperCall, parseCall } from "./helper";
import { parsePath, type Path } from "./path";
import { deadline, parseSettings, withoutSecrets, parseTimes, type Settings, type Times } from "./settings";
import { authenticate, Chunks, keysOf, wholeBody } from "./signature";
import { type Cause, type Row, Store, type Told } from "./store";

export class Sandbox extends DurableObject<Env> {
  private readonly store: Store;
  private readonly box: Box;
  private readonly pace: Pace;
  private readonly data: Data;
  private readonly copy: Copy;
  // still is settled when commands may begin: not while /data is saved or restored. It never rejects.
  private still: Promise<unknown> = Promise.resolve();
  // beginning are the commands that are being started. They never reject.
  private readonly beginning = new Set<Promise<unknown>>();
  // runs are the commands that have begun and whose output has not ended.
  private readonly runs = new Set<Helper>();
  // endings counts the calls under way that end the container.
  private endings = 0;
  // telling is the end of the last word to the copy. It never rejects.
  private telling: Promise<void> = Promise.resolve();
  // turn is the end of the last call that changes what the container does: the next one waits for it.
  private turn: Promise<unknown> = Promise.resolve();
  // armed is when the alarm comes; null where this object has not set it.
  private armed: number | null = null;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    if (ctx.container === undefined) throw new Error("this Durable Object was deployed without a container");
    this.store = new Store(ctx.storage.sql);
    this.pace = timesOf(env.CHECK_MS);
    this.box = new Box(ctx.container, this.store, Date.now, this.pace);
    this.data = new Data(ctx.container, env.STATE, this.store, Date.now);
    this.copy = new Copy(env.DB);
    ctx.waitUntil(this.box.keepAlive());
    this.store.endAttendedRuns(); // a Durable Object that is thrown out of memory breaks every connection
  }

  override async fetch(request: Request): Promise<Response> {
    try {
      return await this.route(request);
    } catch (error) {
      await readOff(request);
      return asFailure(error).response();
    }
  }

  private async route(request: Request): Promise<Response> {
    const signed = await authenticate(request, keysOf(this.env), Date.now());
    const path = parsePath(request);
    await this.notice();
    switch (`${request.method} ${path.verb}`) {
      case "PUT ":
        return this.spawn(path, parseSettings(await wholeBody(request, signed)));
      case "GET ":
        return this.view(path);
      case "DELETE ":
        return this.ending(() => this.inTurn(() => this.kill()));
      case "POST sleep":
        return this.ending(() => this.inTurn(() => this.sleep(path)));
      case "POST wake":
        return this.inTurn(() => this.wake(path));
      case "POST renew":
        return this.renew(path, parseTimes(await wholeBody(request, signed)));
      case "GET data":
        return this.inTurn(() => this.read(path));
      case "POST run": {
        const chunks = new Chunks(request, signed);
        try {
          return await this.run(path, chunks);
        } catch (error) {
          chunks.release();
          throw error;
        }
      }
      case "GET periods":
        return Response.json({ periods: this.store.periods() });
      default:
        throw new Failure("invalid", `there is no ${request.method} ${path.verb}`);
    }
  }

  // alarm proves that the container lives, and ends what is due. It may come early or late. The platform gives up an
  // alarm that fails seven times, and nothing else would wake this object: so it sets the next one itself.
  override async alarm(): Promise<void> {
    this.armed = null;
    try {
      await this.notice();
      this.box.prove();
      await this.box.keepAlive();
      const act = () => this.inTurn(() => this.endWhatIsDue());
      await (this.ended(Date.now()) === null ? act() : this.ending(act));
    } catch (error) {
      console.error(`alarm: ${text(error)}`);
      await this.setAlarm(Date.now() + retry);
    }
  }

  // notice takes note of a container that has ended by itself.
  private async notice(): Promise<void> {
    if (!(await this.box.notice())) return;
    await this.arm();
    this.ctx.waitUntil(this.tell());
  }

  private async endWhatIsDue(): Promise<void> {
    const due = this.due();
    if (due !== null && due.at <= Date.now()) await this.ending(() => this.rest(due.cause));
    if ((this.store.row()?.used_at ?? 0) > Date.now() - 2 * this.pace.check) this.store.owe();
    if (this.ended(Date.now()) === "its deadline") this.store.forgetSecrets();
    if (this.ended(Date.now()) !== null) this.store.owe(); // nothing else tells D1 of one that was asleep
    await this.tell();
    const purgeAt = this.store.purgeAt();
    if (purgeAt !== null && purgeAt <= Date.now()) await this.purge();
    await this.arm();
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
      if (row === null) this.store.create(nameOf(path), settings, Date.now());
      this.store.owe();
      await this.box.stop("start_failed");
      try {
        // It is listed before it is there, so that no list misses it.
        await Promise.all([this.start(path, row?.settings ?? settings), this.mustTell()]);
      } catch (error) {
        // What failed for good is left for a kill; what may go better next time is made anew.
        if (asFailure(error).code !== "failed") await this.forget();
        throw error;
      }
      this.store.setReady();
      await this.tell();
      return this.view(path);
    });
  }

  private async sleep(path: Path): Promise<Response> {
    this.find(path);
    await this.rest("sleep");
    await this.tell();
    await this.arm();
    return this.view(path);
  }

  private async wake(path: Path): Promise<Response> {
    const { settings } = this.find(path);
    if (!this.box.running) {
      await this.start(path, settings);
      await this.tell();
    }
    return this.view(path);
  }

  // renew notes a use that is not seen here, and the times that hold from then on. It starts nothing.
  private renew(path: Path, times: Times): Promise<Response> {
    return this.inTurn(async () => {
      const { settings } = this.find(path);
      this.store.setSettings({ ...settings, ...times });
      this.store.use(Date.now());
      this.store.owe();
      await this.arm();
      await this.tell();
      return this.view(path);
    });
  }

  private async kill(): Promise<Response> {
    await this.box.stop("kill");
    await this.forget();
    return Response.json({ periods: this.store.periods() });
  }

  // forget removes the sandbox, what was saved of it, and its copy. It fails while some of that is still there.
  private async forget(): Promise<void> {
    if (this.store.row() !== null) {
      this.store.remove(Date.now());
      this.store.owe();
    }
    await this.arm();
    await this.mustTell();
    await this.arm();
  }

  // purge forgets one that nobody has killed, and what is known of one that somebody has.
  private async purge(): Promise<void> {
    if (this.store.row() !== null) await this.forget();
    this.store.purge();
  }

  // rest stops the container. What lies in /data is saved before, once its programs have ended; where it cannot be
  // saved, a sandbox that may run goes on.
  private async rest(cause: Cause): Promise<void> {
    const row = this.store.row();
    if (row !== null && this.box.running && cause !== "deadline") {
      try {
        await this.standing(() => this.data.save(row.name, true));
      } catch (error) {
        if (cause !== "ttl" && this.box.running) throw error;
      }
    }
    await this.box.stop(cause);
  }

  // checkpoint saves /data when a command has changed it.
  private async checkpoint(result: Result): Promise<void> {
    const row = this.store.row();
    if (row === null || !this.data.changed(result)) return;
    await this.standing(() => this.data.save(row.name, false)).catch((error: unknown) => {
      console.error(`sandbox ${row.name}: ${text(error)}`); // the next command saves it, or the stop, which tells
    });
  }

  // read returns what lies in /data: of a container that runs, as it is now.
  private async read(path: Path): Promise<Response> {
    const { name } = this.find(path);
    if (this.box.running) await this.standing(() => this.data.save(name, false));
    return this.data.read(name);
  }

  // ending does what ends the container. From then on no run waits for its reader: while its output is not taken, a
  // container's engine may not see that any run of the container has ended, nor that the container has.
  private async ending<T>(act: () => Promise<T>): Promise<T> {
    this.endings++;
    for (const run of this.runs) run.leaveReader();
    try {
      return await act();
    } finally {
      this.endings--;
    }
  }

  // standing does something while no command begins.
  private standing<T>(act: () => Promise<T>): Promise<T> {
    const mine = this.still.then(() => Promise.all(this.beginning)).then(act);
    this.still = mine.catch(() => undefined); // its caller is told
    return mine;
  }

  private async run(path: Path, chunks: Chunks): Promise<Response> {
    this.find(path);
    const call = parseCall(await chunks.next());
    for (let still = null; still !== this.still; await still) still = this.still;
    const { settings } = this.find(path); // it may have been killed since
    if (!this.box.running || deadline(settings) <= Date.now()) {
      throw new Failure("conflict", `sandbox ${path.sandbox}: it is asleep`, "sandbox_invalid_state");
    }
    const id = crypto.randomUUID();
    if (!call.quiet) {
      this.store.use(Date.now());
      this.store.startRun(id, Date.now() + call.limit_ms, call.detached);
    }
    let helper: Helper;
    try {
      helper = await this.begin(call);
    } catch (error) {
      this.store.endRun(id);
      throw this.notRun(path, error);
    }
    const ended = helper.ended.then(() => this.endRun(id));
    const left = helper.feed(chunks).then(() => (call.detached ? undefined : this.endRun(id)));
    this.ctx.waitUntil(Promise.all([ended, left]));
    return new Response(helper.output, { headers: { "Content-Type": "application/octet-stream", "X-Sandbox-Incarnation": String(this.incarnation()) } });
  }

  // begin starts a run of the guest.
  private async begin(call: HelperCall): Promise<Helper> {
    const args = changes(call) ? [...call.args.slice(0, 1), ...withData(call.args.slice(1))] : call.args;
    const started = Helper.start(this.container(), { ...call, args }, async (result) => {
      this.store.used(cpuOf(result), Date.now()); // before its caller counts it
      if (changes(call)) await this.checkpoint(result);
    });
    const begun = started.then(
      (run) => this.keep(run),
      () => undefined,
    );
    this.beginning.add(begun);
    await begun;
    this.beginning.delete(begun);
    return started;
  }

  // keep keeps a run until its output has ended.
  private keep(run: Helper): void {
    this.runs.add(run);
    if (this.endings > 0) run.leaveReader();
    void run.ended.then(() => this.runs.delete(run)); // it never rejects
  }

  private async endRun(id: string): Promise<void> {
    if (!this.store.endRun(id)) return;
    await this.box.notice();
    this.store.use(Date.now()); // the next alarm tells D1: a command costs no rows there
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
    await this.setAlarm(Math.min(deadline(settings), now + this.pace.check)); // first, so that what is started is ended
    await this.standing(async () => {
      await this.box.start(settings, {
        ledger: path.ledger,
        sandbox: path.sandbox,
        environment: settings.environment_id,
        lease: settings.lease_id,
        generation: String(settings.generation),
      });
      try {
        await this.data.restore(nameOf(path));
      } catch (error) {
        await this.box.stop("start_failed");
        throw startFailure(error);
      }
    });
    this.store.owe();
    this.store.use(Date.now());
    await this.arm();
  }

  // ended names the limit that has ended the sandbox for good; null while none has.
  private ended(now: number): "its deadline" | "its ttl" | null {
    const row = this.store.row();
    if (row === null) return null;
    if (deadline(row.settings) <= now) return "its deadline";
    return expiry(row) <= now && !(this.box.running && this.store.busyUntil(now) > now) ? "its ttl" : null;
  }

  // endsAt is when one that is asleep has ended for good; null when it has, or does not sleep.
  private endsAt(): number | null {
    const row = this.store.row();
    if (row === null || this.box.running || expiry(row) <= Date.now()) return null;
    return expiry(row);
  }

  // due says what ends the container next, and when.
  private due(): { at: number; cause: Cause } | null {
    const row = this.store.row();
    if (row === null || !this.box.running) return null;
    const { ttl_ms, sleep_after_ms } = row.settings;
    const used = Math.max(row.used_at, this.store.busyUntil(Date.now()));
    let next: { at: number; cause: Cause } = { at: deadline(row.settings), cause: "deadline" };
    if (ttl_ms > 0 && used + ttl_ms < next.at) next = { at: used + ttl_ms, cause: "ttl" };
    if (sleep_after_ms > 0 && used + sleep_after_ms < next.at) next = { at: used + sleep_after_ms, cause: "idle" };
    return next;
  }

  // arm sets the alarm to what is due next. While the container runs it comes more often: an instance ends that is left
  // alone for longer than its inactivity timeout, and the end of a command may never be heard of.
  private async arm(): Promise<void> {
    const owed = this.store.owes() ? Date.now() + retry : null;
    const at = earliest(this.due()?.at ?? this.endsAt() ?? this.store.purgeAt(), owed);
    if (at === null) {
      await this.ctx.storage.deleteAlarm();
      this.armed = null;
      return;
    }
    const { ttl_ms = 0, sleep_after_ms = 0 } = this.store.row()?.settings ?? {};
    const limits = [ttl_ms, sleep_after_ms, this.pace.check].filter((ms) => ms > 0 && this.box.running);
    const next = Math.min(at, ...limits.map((ms) => Date.now() + ms));
    if (this.armed !== null && this.armed <= next && this.armed > Date.now()) return; // it sets the next one; each costs a row
    await this.setAlarm(next);
  }

  private async setAlarm(at: number): Promise<void> {
    await this.ctx.storage.setAlarm(at);
    this.armed = at;
  }

  private view(path: Path): Response {
    return Response.json(this.standsAs(this.find(path)));
  }

  private standsAs(row: Row) {
    const last = this.store.lastPeriod();
    return {
      settings: withoutSecrets(row.settings),
      state: last?.stopped_at === null ? "running" : "stopped",
      created_at: row.created_at,
      used_at: row.used_at,
      saved_at: this.store.savedAt(),
      period: last,
    };
  }

  // tell brings the copy up to date; the alarm tries again what fails.
  private async tell(): Promise<void> {
    await this.mustTell().catch(async (error: unknown) => {
      console.error(`copy to D1: ${text(error)}`);
      await this.arm();
    });
  }

  private mustTell(): Promise<void> {
    const mine = this.telling.then(() => this.tellNow()); // in order, so that no older word comes after a newer
    this.telling = mine.catch(() => undefined); // its caller is told
    return mine;
  }

  private async tellNow(): Promise<void> {
    if (!this.store.owes()) return;
    const row = this.store.row();
    const told = row ?? this.store.killed();
    this.store.settle(); // what changes meanwhile is owed anew
    if (told === null) return;
    const [ledger = "", sandbox = ""] = told.name.split("/");
    try {
      if (row === null) await this.data.remove(told.name);
      await this.copy.put(ledger, sandbox, row === null ? null : this.standsAs(row), this.lease(told));
    } catch (error) {
      this.store.owe();
      throw new Failure("unavailable", `sandbox ${sandbox}: tell D1 and R2 how it stands: ${text(error)} (retry)`);
    }
  }

  // lease is the row of its lease.
  private lease({ settings: s, created_at, used_at }: Told): Lease {
    const status: LeaseStatus = this.store.row() === null ? "destroyed" : this.ended(Date.now()) !== null ? "expired" : "active";
    return {
      id: s.lease_id,
      generation: s.generation,
      agent_did: s.agent_did,
      environment_id: s.environment_id,
      environment_type: s.environment_type,
      leased_at: created_at,
      last_activity: used_at,
      ttl_ms: s.lease_ttl_ms,
      sleep_after: `${s.lease_sleep_after_ms / 1000}s`,
      expiry_conditions: JSON.stringify(s.expiry_conditions),
      status,
    };
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

// retry is after how long what is owed to D1 or R2 is tried again, in milliseconds.
const retry = 30_000;

function earliest(a: number | null, b: number | null): number | null {
  return a === null || b === null ? (a ?? b) : Math.min(a, b);
}

// expiry is when a sandbox that is not used has ended for good.
function expiry({ settings, used_at }: Row): number {
  const { ttl_ms } = settings;
  return ttl_ms > 0 ? Math.min(deadline(settings), used_at + ttl_ms) : deadline(settings);
}

function nameOf(path: Path): string {
  return `${path.ledger}/${path.sandbox}`;
}

// changes reports whether a run may change what lies in /data.
function changes({ args: [what = "", , request = ""] }: HelperCall): boolean {
  return what === "exec" || what === "tar-in" || (what === "file" && /"op":"(write|remove)"/.test(request));
}

// withData has the guest report the fingerprint of /data. The guest finds a command by the beginning of its
// arguments, which is its id.
function withData(args: string[]): string[] {
  const after = args[0] === "-id" ? 2 : 0;
  return [...args.slice(0, after), "-data", ...args.slice(after)];
}
