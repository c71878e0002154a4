// The Durable Object of one sandbox. It holds the sandbox's deadline, and its alarm ends the container even if no
// reconciler runs.

import { DurableObject } from "cloudflare:workers";

import { Attempts, type Decision, type Ending, type Target, type Who } from "./attempts";
import { Channels } from "./channel";
import { Box, timesOf, type Times as Pace } from "./container";
import { Copy, type Lease, type LeaseStatus } from "./copy";
import { Data } from "./data";
import { Disk } from "./disk";
import type { Env } from "./env";
import { asFailure, Failure, readOff, startFailure, text } from "./errors";
import { concat, type Result } from "./frames";
import { Book } from "./llm/book";
import { type Caller, Calls } from "./llm/calls";
import { unavailable } from "./llm/refusal";
import { Networks } from "./networks";
import { parsePath, type Path } from "./path";
import { Key, makeKeyTable, OperationFailed, problemNotFound, work } from "./port";
import { Rows } from "./rows";
import { deadline, parseSettings, parseTimes, type Settings, type Times, withoutSecrets } from "./settings";
import { authenticate, keysOf, wholeBody } from "./signature";
import { type Cause, type KeptDisk, makeTables, type Row, Store, type Told, type Usage } from "./store";
import { Uses } from "./uses";
import { within } from "./wait";

export class Sandbox extends DurableObject<Env> {
  private readonly rows: Rows;
  private readonly store: Store;
  private readonly box: Box;
  private readonly pace: Pace;
  private readonly data: Data;
  private readonly disk: Disk;
  private readonly copy: Copy;
  private readonly key: Key;
  private readonly uses: Uses;
  private readonly channels: Channels;
  private readonly attempts: Attempts;
  private readonly calls: Calls;
  // still resolves when clients may connect: they wait while /data is saved or restored. It never rejects.
  private still: Promise<unknown> = Promise.resolve();
  // telling resolves when the last write to the copy has ended. It never rejects.
  private telling: Promise<void> = Promise.resolve();
  // turn resolves when the last call of inTurn has ended. The next one waits, so that changes of the container never
  // overlap.
  private turn: Promise<unknown> = Promise.resolve();
  // starting: this object starts the container.
  private starting = false;
  // armed is the time of the alarm; null if this object has not set one.
  private armed: number | null = null;
  // unread: the copy does not have the last reading of usage. busy: the container used its CPU before that reading.
  private unread = false;
  private busy = false;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    if (ctx.container === undefined) throw new Error("this Durable Object was deployed without a container");
    this.rows = new Rows(ctx.storage, (sql) => {
      makeTables(sql);
      makeKeyTable(sql);
    });
    this.store = new Store(this.rows);
    this.pace = timesOf(env.CHECK_MS);
    this.box = new Box(ctx.container, this.store, Date.now, this.pace, env.SIZE ?? "", () => this.outbound());
    this.key = new Key(this.rows);
    this.uses = new Uses(this.store, Date.now, (result) => this.checkpoint(result), () => this.disconnected());
    this.channels = new Channels(ctx.container, this.key, this.uses, (p) => this.ctx.waitUntil(p));
    this.data = new Data(ctx.container, this.key, env.STATE, this.store, Date.now);
    this.disk = new Disk(ctx.container, this.store, Date.now);
    this.copy = new Copy(env.DB);
    this.attempts = new Attempts(new Networks(env.DB), Date.now, (p) => this.ctx.waitUntil(p));
    this.calls = new Calls(new Book(env.DB), () => keysOf(env), Date.now, (p) => this.ctx.waitUntil(p));
    ctx.waitUntil(this.box.keepAlive());
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
    if (path.verb !== "channel") this.uses.flush(); // a row for each connection would cost too much
    await this.notice();
    switch (`${request.method} ${path.verb}`) {
      case "PUT ":
        return this.spawn(path, parseSettings(await wholeBody(request, signed)));
      case "GET ":
        return this.view(path);
      case "DELETE ":
        await this.box.cut(); // a save of its disk or a start may take minutes
        return this.inTurn(() => this.kill());
      case "POST sleep":
        return this.inTurn(() => this.sleep(path));
      case "POST wake":
        return this.inTurn(() => this.wake(path));
      case "POST renew":
        return this.renew(path, parseTimes(await wholeBody(request, signed)));
      case "GET data":
        return this.inTurn(() => this.read(path));
      case "GET channel":
        return this.openChannel(path, request);
      case "GET usage":
        return this.sample(path);
      case "GET periods":
        return Response.json({ periods: this.store.periods() });
      default:
        throw new Failure("invalid", `a sandbox does not support ${request.method} ${path.verb}`);
    }
  }

  // Outbound calls decide, attemptReached and attemptEnded for each network attempt of the sandbox.
  async decide(target: Target): Promise<Decision> {
    const row = this.store.row();
    if (row === null || !row.settings.restricted) {
      return { refusal: { reason: "no_policy", detail: "the sandbox has no restricted network" } };
    }
    return this.attempts.decide(whoIs(row), target);
  }

  attemptReached(id: string): void {
    const told = this.store.row() ?? this.store.killed();
    if (told !== null) this.attempts.reached(whoIs(told), id);
  }

  attemptEnded(id: string, ending: Ending): void {
    const told = this.store.row() ?? this.store.killed();
    if (told !== null) this.attempts.ended(whoIs(told), id, ending);
  }

  // callModel answers a request of the sandbox to an LLM route.
  async callModel(request: Request): Promise<Response> {
    const row = this.store.row();
    if (!row?.settings.llm || !this.box.running) return unavailable("the sandbox has no LLM routes").response("openai");
    return this.calls.serve(callerOf(row), request);
  }

  // tidyCalls settles calls that an earlier object of this sandbox left running.
  async tidyCalls(ledger: string, environment: string, sandbox: string): Promise<void> {
    await this.calls.tidy({ ledger, environment, sandbox });
  }

  private outbound(): Fetcher {
    const [ledger = "", sandbox = ""] = (this.store.row()?.name ?? "").split("/");
    return this.ctx.exports.Outbound({ props: { ledger, sandbox } });
  }

  // flushLog writes the waiting lines of the log.
  private async flushLog(): Promise<void> {
    const row = this.store.row();
    if (row?.settings.restricted) await this.attempts.flush(whoIs(row));
  }

  // endCalls ends the calls of a container that has stopped. If a write to D1 fails, the call is settled when the
  // ledger reads the journal.
  private async endCalls(why: string): Promise<void> {
    const row = this.store.row();
    if (!row?.settings.llm) return;
    await this.calls.close(why);
    // After its ttl a renewal may let it start again, and it must not forget then what its lease has spent.
    const dead = why === killed || this.ended(Date.now()) === "its deadline";
    const tidy = dead ? this.calls.remove(whoIs(row)) : this.calls.tidy(whoIs(row));
    await tidy.catch((error: unknown) => console.error(`settle calls of models: ${text(error)}`));
  }

  // alarm records the usage of the container, and ends what is due. It may come early or late. The platform gives up on
  // an alarm after seven failures, and nothing else would wake this object. So a failed alarm sets the next one itself.
  override async alarm(): Promise<void> {
    this.armed = null;
    try {
      this.uses.flush();
      await this.flushLog();
      await this.measure();
      await this.box.keepAlive();
      await this.notice();
      await this.inTurn(() => this.endWhatIsDue());
    } catch (error) {
      console.error(`alarm: ${text(error)}`);
      await this.setAlarm(Date.now() + retry);
    }
  }

  // notice records the end of a container that has ended by itself, and ends one whose start was interrupted.
  private async notice(): Promise<void> {
    if (!(await this.endInterrupted()) && !(await this.box.notice())) return;
    await this.endCalls("the container has ended");
    await this.arm();
    this.ctx.waitUntil(this.tell());
  }

  // endInterrupted ends a container whose start an earlier object did not finish, and reports whether there was one. Its
  // /data lacks what is saved, so no command may use it and no save may keep it. spawn itself deals with first starts.
  private async endInterrupted(): Promise<boolean> {
    const interrupted = () => {
      return this.box.running && !this.starting && !this.store.restored() && this.store.row()?.ready === true;
    };
    if (!interrupted()) return false;
    return this.inTurn(async () => {
      if (!interrupted()) return false; // another call has ended it
      await this.box.stop("start_failed");
      return true;
    });
  }

  // disconnected runs after the last client has disconnected. The cause may be the end of the container, so it checks.
  private async disconnected(): Promise<void> {
    this.uses.flush();
    await this.notice();
    await this.arm();
  }

  private async endWhatIsDue(): Promise<void> {
    await this.askDetached();
    this.uses.flush();
    const due = this.due();
    if (due !== null && due.at <= Date.now()) await this.rest(due.cause);
    if (this.store.row() === null) await this.box.stop("start_failed"); // a container without its sandbox
    if ((this.store.row()?.used_at ?? 0) > Date.now() - 2 * this.pace.check) this.store.owe();
    if (this.ended(Date.now()) === "its deadline") {
      this.store.forgetSecrets();
      this.key.forget();
    }
    if (this.ended(Date.now()) !== null) this.store.owe(); // no other call updates D1 when a sleeping sandbox ends
    await this.tell();
    const purgeAt = this.store.purgeAt();
    if (purgeAt !== null && purgeAt <= Date.now()) await this.purge();
    else await this.arm();
  }

  private spawn(path: Path, settings: Settings): Promise<Response> {
    return this.inTurn(async () => {
      const row = this.store.row();
      const last = this.store.lastPeriod();
      if (row !== null && !this.box.running && (row.ready || last?.cause === "start_failed")) {
        const why = `it was created earlier and has stopped (${last?.cause})`;
        throw new Failure("failed", `sandbox ${path.sandbox}: ${why}`, "sandbox_start_failed");
      }
      if (row?.ready) return this.view(path);
      // The sandbox is new, or a reset interrupted its creation.
      if (row === null) this.store.create(nameOf(path), settings, Date.now());
      this.store.owe();
      await this.box.stop("start_failed");
      // D1 gets the sandbox's row while the container starts, so that no list misses it. The turn lasts until both have
      // ended.
      const both = await Promise.allSettled([this.start(path, row?.settings ?? settings), this.mustTell()]);
      const failed = both.find((each) => each.status === "rejected");
      if (failed !== undefined) {
        // The start may have succeeded, but without its row in D1 no list has the container.
        await this.box.stop("start_failed");
        // After a permanent failure the sandbox stays until its kill. After any other, a retry creates it again.
        if (asFailure(failed.reason).code !== "failed") await this.forget();
        throw failed.reason;
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

  // renew records a use that this object does not see, and sets the limits that apply from now on. It starts nothing.
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
    this.channels.close(killed);
    await this.flushLog();
    await this.endCalls(killed);
    await this.forget();
    return Response.json({ periods: this.store.periods() });
  }

  // forget removes the sandbox, its saved /data and its copy. It fails if one of them remains.
  private async forget(): Promise<void> {
    this.key.forget();
    if (this.store.row() !== null) this.store.remove(Date.now());
    if (this.store.killed() !== null) this.store.owe(); // every time: a late write may have restored its row
    await this.arm();
    await this.mustTell();
    await this.arm();
  }

  // purge removes the sandbox if it was never killed, and then all its records. There is no alarm after it.
  private async purge(): Promise<void> {
    if (this.store.row() !== null) {
      await this.endCalls(killed);
      await this.forget();
    }
    await this.rows.drop();
    this.armed = null;
  }

  // rest stops the container. Before that, it ends the programs and saves /data, unless the deadline has passed. If the
  // save fails, the container runs on, unless its ttl has passed. A sleep then saves the disk if keep_disk is set.
  private async rest(cause: Cause): Promise<void> {
    const row = this.store.row();
    if (row !== null && this.box.running && cause !== "deadline") {
      try {
        await this.standing(async () => {
          await this.data.save(row.name, "stop");
          if (cause === "ttl" || !row.settings.keep_disk) return;
          this.channels.close(`the container ends: ${cause}`); // a command would change what is being saved
          await this.disk.save(row.settings);
        });
      } catch (error) {
        if (cause !== "ttl" && this.box.running) throw error;
      }
    }
    await this.box.stop(cause);
    this.channels.close(`the container ends: ${cause}`);
    await this.flushLog();
    await this.endCalls(`the container ends: ${cause}`);
  }

  // checkpoint saves /data when a command has changed it.
  private async checkpoint(result: Result): Promise<void> {
    const row = this.store.row();
    if (row === null || !this.box.running || !this.data.changed(result)) return;
    await this.standing(() => this.data.save(row.name, "command")).catch((error: unknown) => {
      console.error(`sandbox ${row.name}: ${text(error)}`); // the next command or stop retries
    });
    if (this.store.row() !== null) return;
    // A kill waits for no save, so this one may have written /data after the kill had removed it. Telling the copy removes
    // it again.
    this.store.owe();
    await this.tell();
  }

  // read returns the current /data if the container runs, otherwise the saved one.
  private async read(path: Path): Promise<Response> {
    const { name } = this.find(path);
    if (this.box.running) await this.standing(() => this.data.save(name, "read"));
    return this.data.read(name);
  }

  // standing runs act while no client can connect. The guest starts no command meanwhile.
  private standing<T>(act: () => Promise<T>): Promise<T> {
    const mine = this.still.then(act);
    this.still = mine.catch(() => undefined); // the caller gets the error
    return mine;
  }

  private async openChannel(path: Path, request: Request): Promise<Response> {
    this.find(path);
    for (let still = null; still !== this.still; await still) still = this.still;
    this.awake(path);
    try {
      return await this.channels.accept(request, Date.now());
    } catch (error) {
      if (error instanceof Failure) throw error;
      this.awake(path);
      throw new Failure("unavailable", `sandbox ${path.sandbox}: connect to its guest: ${text(error)} (retry)`);
    }
  }

  // awake fails if the sandbox accepts no commands.
  private awake(path: Path): void {
    const { settings } = this.find(path);
    if (!this.box.running || deadline(settings) <= Date.now()) {
      throw new Failure("conflict", `sandbox ${path.sandbox}: it is asleep`, "sandbox_invalid_state");
    }
  }

  private async sample(path: Path): Promise<Response> {
    this.awake(path);
    try {
      return new Response(await this.usage(), { headers: { "Content-Type": "application/json" } });
    } catch (error) {
      this.awake(path);
      throw new Failure("failed", `sandbox ${path.sandbox}: read its usage: ${text(error)}`, "sandbox_stats_failed");
    }
  }

  // usage asks the guest for the sandbox's resource usage, in JSON. It does not count as a use of the sandbox.
  private async usage(cancel?: Promise<void>): Promise<Uint8Array> {
    const said: Uint8Array[] = [];
    const take = async (payload: Uint8Array) => void said.push(payload.slice());
    await work(this.container(), this.key, { request: { op: "usage" }, take, ...(cancel && { cancel }) });
    return concat(said);
  }

  // measure records what the container has used, for the next list of sandboxes, and that it is alive.
  private async measure(): Promise<void> {
    const last = this.store.lastPeriod();
    if (last === null || !this.box.steady) return;
    try {
      const usage = JSON.parse(new TextDecoder().decode(await soon((cancel) => this.usage(cancel)))) as Usage;
      const [now, since] = [Date.now(), Math.max(last.read_at, last.started_at)];
      this.store.read(last.incarnation, usage, now);
      this.busy = usage.cpu_ns / 1000 - last.cpu_us > busyShare * 1000 * (now - since);
      this.unread = true;
    } catch {
      this.box.prove(); // a frozen guest does not answer
    }
  }

  // askDetached asks the guest which detached commands have ended, because their clients may be gone, and saves what they
  // left in /data.
  private async askDetached(): Promise<void> {
    if (!this.box.running) return;
    const runs = this.store.runs();
    const ended = await Promise.all(runs.map((id) => this.hasEnded(id)));
    if (!ended.includes(true)) return;
    await this.checkpoint({ exit_code: 0 });
    runs.filter((_, i) => ended[i]).forEach((id) => this.uses.ended(id));
  }

  // hasEnded reports whether a command is known to have ended.
  private async hasEnded(id: string): Promise<boolean> {
    try {
      await soon((cancel) => work(this.container(), this.key, { request: { op: "follow", id, follow: { quiet: true } }, cancel }));
      return true;
    } catch (error) {
      return error instanceof OperationFailed && (error.ran || error.problem === problemNotFound);
    }
  }

  private async start(path: Path, settings: Settings): Promise<void> {
    const now = Date.now();
    const due = this.ended(now);
    if (due !== null) {
      const why = `it cannot start: ${due} has passed`;
      throw new Failure("failed", `sandbox ${path.sandbox}: ${why}`, "sandbox_start_failed");
    }
    this.store.use(now);
    // The alarm is set first, so that a started container always ends.
    await this.setAlarm(Math.min(deadline(settings), now + this.pace.check));
    const labels = {
      ledger: path.ledger,
      sandbox: path.sandbox,
      environment: settings.environment_id,
      lease: settings.lease_id,
      generation: String(settings.generation),
    };
    const begin = async (snapshot: string | null) => {
      await this.box.start(settings, labels, this.key, snapshot);
      this.uses.began();
      try {
        await this.data.restore(nameOf(path), snapshot !== null);
      } catch (error) {
        await this.box.stop("start_failed");
        throw startFailure(error);
      }
    };
    this.starting = true;
    try {
      await this.standing(async () => {
        await this.disk.start(settings, begin);
        this.store.started(Date.now());
      });
    } finally {
      this.starting = false;
    }
    this.store.owe();
    await this.arm();
  }

  // ended names the limit that has ended the sandbox for good; null if none has.
  private ended(now: number): "its deadline" | "its ttl" | null {
    const row = this.store.row();
    if (row === null) return null;
    if (deadline(row.settings) <= now) return "its deadline";
    return expiry(row) <= now && !(this.store.open && this.uses.busyUntil(now) > now) ? "its ttl" : null;
  }

  // endsAt is when a sleeping sandbox ends for good; null if it has ended or does not sleep.
  private endsAt(): number | null {
    const row = this.store.row();
    if (row === null || this.store.open || expiry(row) <= Date.now()) return null;
    return expiry(row);
  }

  // due says when the container must stop next, and why. Of the limits that have passed it names the most severe: a save
  // that fails keeps a container from its sleep, but not from its end. A container that has ended stays due until its end
  // is recorded.
  private due(): { at: number; cause: Cause } | null {
    const row = this.store.row();
    if (row === null || !this.store.open) return null;
    const now = Date.now();
    const { ttl_ms, sleep_after_ms } = row.settings;
    const used = Math.max(row.used_at, this.uses.busyUntil(now));
    const limits: { at: number; cause: Cause }[] = [{ at: deadline(row.settings), cause: "deadline" }];
    if (ttl_ms > 0) limits.push({ at: used + ttl_ms, cause: "ttl" });
    if (sleep_after_ms > 0) limits.push({ at: used + sleep_after_ms, cause: "idle" });
    return limits.find(({ at }) => at <= now) ?? limits.reduce((next, limit) => (limit.at < next.at ? limit : next));
  }

  // arm sets the alarm for what is due next. Until the end of the container is recorded, the alarm comes more often:
  // the platform ends a container after its inactivity timeout, and the end of a command may never be reported.
  private async arm(): Promise<void> {
    const owed = this.store.owes() ? Date.now() + retry : null;
    const at = earliest(this.due()?.at ?? this.endsAt() ?? this.store.purgeAt(), owed);
    if (at === null) return; // there are no records, and so no alarm
    const { ttl_ms = 0, sleep_after_ms = 0 } = this.store.row()?.settings ?? {};
    const check = this.busy ? this.pace.busyCheck : this.pace.check;
    const limits = [ttl_ms, sleep_after_ms, check].filter((ms) => ms > 0 && this.store.open);
    const next = Math.min(at, ...limits.map((ms) => Date.now() + ms));
    // An earlier alarm sets the next one itself. Setting an alarm costs a row.
    if (this.armed !== null && this.armed <= next && this.armed > Date.now()) return;
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
      state: this.store.open ? "running" : "stopped",
      created_at: row.created_at,
      used_at: row.used_at,
      saved_at: this.store.savedAt(),
      disk: diskOf(this.store.disk()),
      period: last,
    };
  }

  // tell updates the copy. After a failure the alarm retries.
  private async tell(): Promise<void> {
    await this.mustTell().catch(async (error: unknown) => {
      console.error(`copy to D1: ${text(error)}`);
      await this.arm();
    });
  }

  private mustTell(): Promise<void> {
    const mine = this.telling.then(() => this.tellNow()); // in order, so that no older state replaces a newer one
    this.telling = mine.catch(() => undefined); // the caller gets the error
    return mine;
  }

  private async tellNow(): Promise<void> {
    const owes = this.store.owes();
    if (!owes && !this.unread) return;
    const row = this.store.row();
    const told = row ?? this.store.killed();
    const version = this.store.version();
    this.unread = false;
    if (told === null) {
      this.store.settle(version);
      return;
    }
    const [ledger = "", sandbox = ""] = told.name.split("/");
    const view = row === null ? null : listed({ ...this.standsAs(row), version });
    const lease = owes ? this.lease(told) : null;
    try {
      if (row === null) await this.data.remove(told.name);
      await this.ctx.storage.sync(); // another object may make the call, so it does not wait for this one's storage
      await this.copy.put(ledger, sandbox, view, lease);
    } catch (error) {
      this.store.owe();
      throw new Failure("unavailable", `sandbox ${sandbox}: update its copy in D1 and R2: ${text(error)} (retry)`);
    }
    if (owes) this.store.settle(version);
  }

  // lease returns the sandbox's row in sandbox_leases.
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

  private container(): Container {
    if (this.ctx.container === undefined) throw new Error("unreachable: the constructor has checked");
    return this.ctx.container;
  }

  private inTurn<T>(act: () => Promise<T>): Promise<T> {
    const mine = this.turn.then(act);
    this.turn = mine.catch(() => undefined); // the caller gets the error
    return mine;
  }
}

// whoIs identifies the sandbox in the log of attempts.
function whoIs({ name, settings }: Told): Who {
  const [ledger = "", sandbox = ""] = name.split("/");
  return { ledger, environment: settings.environment_id, sandbox, agent: settings.agent_did };
}

function callerOf(row: Row): Caller {
  return { ...whoIs(row), lease: row.settings.lease_id, generation: row.settings.generation };
}

// killed is the reason that the calls of a killed sandbox get.
const killed = "the sandbox was killed";

// diskOf returns what answers say about a kept disk; undefined if the disk does not outlive a sleep.
function diskOf(disk: KeptDisk | null) {
  return disk === null ? undefined : { saved_at: disk.saved_at, lost: disk.lost };
}

// listed returns a view for the copy. It has no conditions, because an answer to a list is limited, and only the lease's
// row needs them.
function listed<V extends { settings: Settings }>(view: V): V {
  return { ...view, settings: { ...view.settings, expiry_conditions: [] } };
}

function absent(path: Path): Failure {
  return new Failure("not_found", `sandbox ${path.sandbox} does not exist`, "sandbox_not_found");
}

// askLimit is how long the guest may take to answer an alarm, in milliseconds.
const askLimit = 500;

// busyShare is the share of one CPU above which a container counts as busy.
const busyShare = 0.05;

// soon runs an operation in the guest. After askLimit it fails and cancels the operation, without waiting for its end: a
// connection to a container that has ended may hang, and the alarm has more to do.
async function soon<T>(ask: (cancel: Promise<void>) => Promise<T>): Promise<T> {
  let giveUp = () => {};
  const asking = ask(new Promise<void>((resolve) => (giveUp = resolve)));
  if (await within(asking, askLimit)) return asking;
  giveUp();
  throw new Error(`the guest did not answer within ${askLimit} ms`);
}

// retry is the time until the next attempt after a failed alarm, or a failed update of D1 or R2, in milliseconds.
const retry = 30_000;

function earliest(a: number | null, b: number | null): number | null {
  return a === null || b === null ? (a ?? b) : Math.min(a, b);
}

// expiry is when an unused sandbox ends for good.
function expiry({ settings, used_at }: Row): number {
  const { ttl_ms } = settings;
  return ttl_ms > 0 ? Math.min(deadline(settings), used_at + ttl_ms) : deadline(settings);
}

function nameOf(path: Path): string {
  return `${path.ledger}/${path.sandbox}`;
}
