// Starts and stops one container, and records each period in which it runs.

import { options } from "./choice";
import { Failure, startFailure, text } from "./errors";
import { modelsHost } from "./llm/calls";
import { type Key, keyVariable, portNumber, work } from "./port";
import { deadline, type Settings } from "./settings";
import type { Cause, Store } from "./store";
import { inTime, whileRuns } from "./wait";

// stopGrace is how long a container may take to end after SIGTERM, in milliseconds. The guest gives its programs 8 s.
const stopGrace = 10_000;

// platformLimit is the timeout for the platform to end a container or to accept its inactivity timeout, in
// milliseconds.
const platformLimit = 30_000;

// endPoll is how often a stop checks whether the container has ended. endLimit is how long the platform may take to
// report how it ended. Both are in milliseconds.
const endPoll = 20;
const endLimit = 1000;

// startLimit is the timeout for the guest to become ready, in milliseconds. A start at Cloudflare takes seconds.
const startLimit = 60_000;

// guest is the path of the guest in an image. user is the uid and gid that it runs commands as.
const guest = "/.sandbox/guest";
const user = "1000";

// readyPause is the pause between two attempts to reach a starting guest, in milliseconds.
const readyPause = 20;

// exitDeadline is the exit code of a guest that has reached its deadline (internal/guest/keeper).
const exitDeadline = 124;

// Times are the intervals that keep a container alive, in milliseconds.
export interface Times {
  // check is the interval of the alarm while the container runs. Each alarm records what the container has used.
  check: number;
  // busyCheck is the interval for a container that uses its CPU.
  busyCheck: number;
  // inactivity is how long the container runs after its Durable Object was last active. Then the platform ends it,
  // whatever runs inside. The platform accepts at most 6 h.
  inactivity: number;
}

// defaultCheck is the default of check. With it, the object of an idle sandbox is in memory for 10 s of every 300 s.
const defaultCheck = 300_000;

// timesOf returns the intervals for the variable CHECK_MS. An alarm may be late or fail, so inactivity allows for two
// missed alarms.
export function timesOf(check: string | undefined): Times {
  const ms = Number(check ?? defaultCheck);
  return { check: ms, busyCheck: ms / 5, inactivity: 3 * ms };
}

// Box starts and stops the container. Its caller must ensure that only one start or stop runs at a time. It may call
// cut during either.
//
// Box leaves no monitor() pending: that would keep the Durable Object in memory, and billed, for 15 minutes. Instead,
// notice() compares the record with the container at every request and alarm.
export class Box {
  // ending is the cause of a stop whose end is not recorded yet; null if there is none.
  private ending: Cause | null = null;
  // acting counts the running starts and stops. They record the end themselves, so notice() does not.
  private acting = 0;
  // wasCut: a kill has ended the last container.
  private wasCut = false;
  // seen is when this object last saw the container run; 0 if it never did.
  private seen = 0;
  // intercepted: this object has set its handlers on the container. Each new object must set its own.
  private intercepted = false;

  constructor(
    private readonly container: Container,
    private readonly store: Store,
    private readonly now: () => number,
    private readonly times: Times,
    // size is the size of a container whose start chooses none.
    private readonly size: string,
    // outbound returns the handler of outgoing requests.
    private readonly outbound: () => Fetcher,
  ) {}

  get running(): boolean {
    return this.container.running;
  }

  // keepAlive sets the inactivity timeout, so that the container keeps running while this object is inactive. The
  // timeout ends with the object, so each new object and each alarm sets it again.
  async keepAlive(): Promise<void> {
    if (!this.container.running) return;
    try {
      const settings = this.store.row()?.settings;
      if (!this.intercepted && settings !== undefined) await this.intercept(settings);
      await inTime(this.container.setInactivityTimeout(this.times.inactivity), platformLimit, "the platform");
    } catch (error) {
      if (this.container.running) console.error(`keep the container alive: ${text(error)}`); // the next alarm retries
    }
  }

  // intercept passes requests of the container to the handler outbound: every HTTP and HTTPS request with a restricted
  // network, otherwise only LLM calls. It takes effect before the first program runs. With a restricted network, other
  // traffic cannot leave the container.
  private async intercept({ restricted, llm }: Settings): Promise<void> {
    if (!restricted && !llm) return;
    const out = this.outbound();
    if (restricted) {
      await this.container.interceptAllOutboundHttp(out);
      await this.container.interceptOutboundHttps("*", out);
    } else {
      await this.container.interceptOutboundHttp(modelsHost, out);
    }
    this.intercepted = true;
  }

  // steady: the container runs, and nothing starts or stops it.
  get steady(): boolean {
    return this.container.running && this.acting === 0;
  }

  // prove records that the container is alive now.
  prove(): void {
    if (this.steady) this.store.alive(this.now());
  }

  // notice records the end of a container that ended without a stop, and reports whether there was one. The period ends
  // at the last proof of life, because the platform does not report when the container ended.
  async notice(): Promise<boolean> {
    const last = this.store.lastPeriod();
    if (this.acting > 0 || last === null || last.stopped_at !== null) return false;
    if (this.container.running) {
      this.seen = this.now();
      return false;
    }
    const { code } = await this.outcome();
    const proof = Math.max(last.started_at, last.alive_at, this.seen);
    const end = this.deadlineBy(code, proof);
    if (end === null) this.store.end(last.incarnation, proof, this.ending ?? "crash", code);
    else this.store.end(last.incarnation, end, "deadline", code);
    this.ending = null;
    return true;
  }

  // deadlineBy returns when a container reached its deadline, null if something else ended it.
  private deadlineBy(code: number | null, proof: number): number | null {
    const row = this.store.row();
    if (row === null) return null;
    const end = deadline(row.settings);
    if (code === exitDeadline) return Math.min(end, this.now());
    // Without an exit code, the deadline counts as the cause if at most two intervals lie between it and the last
    // proof of life.
    const missed = code === null && end <= this.now() && proof + 2 * this.times.check >= end;
    return missed ? end : null;
  }

  // start returns once the container accepts commands. Its disk comes from the snapshot, or from its image if snapshot
  // is null.
  async start(settings: Settings, labels: Record<string, string>, key: Key, snapshot: string | null): Promise<void> {
    const incarnation = this.store.begin(this.now(), settings.choice === undefined ? this.size : "");
    this.ending = null;
    this.wasCut = false;
    this.acting++;
    try {
      await this.intercept(settings);
      if (this.wasCut) throw new Error("it is killed");
      this.container.start({
        entrypoint: [guest, "keep", "-uid", user, "-gid", user, "-port", String(portNumber), "-deadline", String(settings.deadline_us), "-config", settings.config],
        env: { ...settings.env, [keyVariable]: key.renew() },
        enableInternet: settings.internet,
        labels,
        ...options(this.container, settings.choice, snapshot),
      });
      await this.keepAlive();
      await this.ready(key);
      this.store.alive(this.now());
    } catch (error) {
      this.store.end(incarnation, this.now(), "start_failed", null);
      await this.container.destroy().catch(() => undefined); // it may not exist
      throw startFailure(error);
    } finally {
      this.acting--;
    }
  }

  // cut ends the container at once, even during a start or another stop, which then records the end.
  async cut(): Promise<void> {
    this.wasCut = true;
    if (this.acting === 0) return this.stop("kill");
    if (this.container.running) await this.destroy();
  }

  // stop returns once the container has ended. If it does not run, stop only records its end.
  async stop(cause: Cause): Promise<void> {
    if (!this.container.running) {
      await this.notice();
      return;
    }
    const last = this.store.lastPeriod();
    this.ending = cause;
    this.acting++;
    try {
      if (cause !== "kill") {
        this.container.signal(15);
        await this.gone(stopGrace);
      }
      await this.destroy();
      await this.gone(stopGrace);
      const { code } = this.container.running ? { code: null } : await this.outcome();
      if (last !== null) this.store.end(last.incarnation, this.now(), this.wasCut ? "kill" : cause, code);
      this.ending = null;
    } finally {
      this.acting--;
    }
  }

  private async destroy(): Promise<void> {
    try {
      await inTime(this.container.destroy(), platformLimit, "the platform");
    } catch (error) {
      throw new Failure("unknown_outcome", `end its container: ${text(error)} (retry)`);
    }
  }

  // ready returns once process 1 accepts commands. Until it listens, connections fail or nothing answers them, so ready
  // retries.
  private async ready(key: Key): Promise<void> {
    const limit = this.now() + startLimit;
    for (let why = ""; ; await scheduler.wait(readyPause)) {
      // monitor() of a running container would keep this object in memory, so outcome() comes after its end.
      if (!this.container.running) throw new Error((await this.outcome()).why);
      const left = limit - this.now();
      if (left <= 0) throw new Error(`its guest is not ready after ${startLimit / 1000} s: ${why}`);
      const probe = work(this.container, key, { request: { op: "usage" }, probe: true });
      probe.catch((error: unknown) => (why = text(error)));
      if (await whileRuns(this.container, probe, left, "its guest").then(() => true, () => false)) return;
    }
  }

  // gone returns once the container has ended, or after ms.
  private async gone(ms: number): Promise<void> {
    const limit = this.now() + ms;
    while (this.container.running && this.now() < limit) await scheduler.wait(endPoll);
  }

  // outcome returns how a container ended. code is null if the platform does not report it to this object.
  private async outcome(): Promise<{ code: number | null; why: string }> {
    try {
      await inTime(this.container.monitor(), endLimit, "the platform");
      return { code: 0, why: "it ended with exit code 0" };
    } catch (error) {
      return { code: exitCode(text(error)), why: text(error) };
    }
  }
}

// exitCode parses the message of an error of monitor().
function exitCode(message: string): number | null {
  const match = /exit code: (\d+)/.exec(message);
  return match?.[1] === undefined ? null : Number(match[1]);
}
