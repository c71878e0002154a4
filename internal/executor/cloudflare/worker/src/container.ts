// One container, its lives and their records.

import { Failure, startFailure, text } from "./errors";
import { type Key, keyVariable, portNumber, work } from "./port";
import { deadline, type Settings } from "./settings";
import type { Cause, Store } from "./store";
import { inTime, within } from "./wait";

// stopGrace is what a container gets to end by itself, in milliseconds. The guest gives its programs 8 s.
const stopGrace = 10_000;

// destroyLimit bounds the wait for the platform to end a container, in milliseconds.
const destroyLimit = 30_000;

// endPoll is how often a container that is to end is looked at, endLimit how long one that has ended may take to tell
// how, in milliseconds.
const endPoll = 20;
const endLimit = 1000;

// startLimit bounds the wait for the guest, in milliseconds. Starts at Cloudflare take seconds.
const startLimit = 60_000;

// guest is where an image has the guest, and user whom it runs commands as.
const guest = "/.sandbox/guest";
const user = "1000";

// readyPause is between two looks at a container that starts, in milliseconds.
const readyPause = 20;

// exitDeadline is the exit code of a guest whose deadline has come (internal/guest/keeper).
const exitDeadline = 124;

// Times say how a container is kept alive, in milliseconds.
export interface Times {
  // check is how often the alarm comes while the container runs: it proves that the container lives.
  check: number;
  // inactivity is how long the container runs after its Durable Object has last been active. The platform ends it
  // then, whatever runs inside. It takes 6 h at most.
  inactivity: number;
}

// defaultCheck keeps an idle object in memory for 10 s of 300 s.
const defaultCheck = 300_000;

// timesOf takes the pace from the Worker's variables. Alarms may be late or fail: two may be missed.
export function timesOf(check: string | undefined): Times {
  const ms = Number(check ?? defaultCheck);
  return { check: ms, inactivity: 3 * ms };
}

// Box starts and stops the container. Its caller sees to it that only one start or stop is under way.
//
// It holds no monitor(): a pending one keeps the Durable Object in memory, and billed, for 15 minutes. notice()
// compares the record with the container at every request and alarm instead.
export class Box {
  // ending is why it is being stopped; null for a container that ends by itself.
  private ending: Cause | null = null;
  // acting counts the starts and stops under way, which record the end themselves.
  private acting = 0;
  // seen is when this object last saw it run; 0: not yet.
  private seen = 0;

  constructor(
    private readonly container: Container,
    private readonly store: Store,
    private readonly now: () => number,
    private readonly times: Times,
  ) {}

  get running(): boolean {
    return this.container.running;
  }

  // keepAlive lets the container outlive the activity of this object. The timeout ends with the object: each new one
  // sets it, and each alarm sets it again.
  async keepAlive(): Promise<void> {
    if (!this.container.running) return;
    try {
      await this.container.setInactivityTimeout(this.times.inactivity);
    } catch (error) {
      if (this.container.running) console.error(`set the inactivity timeout: ${text(error)}`); // the next alarm tries again
    }
  }

  // prove records that the container runs now.
  prove(): void {
    if (this.container.running && this.acting === 0) this.store.alive(this.now());
  }

  // notice records an end that no stop of ours has caused, and reports whether there was one. The period ends at the
  // last proof of life: the platform does not tell when it ended.
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

  // deadlineBy is the deadline of a container that ended by it, null for one that did not.
  private deadlineBy(code: number | null, proof: number): number | null {
    const row = this.store.row();
    if (row === null) return null;
    const end = deadline(row.settings);
    if (code === exitDeadline) return Math.min(end, this.now());
    // Without an exit code: it lived until the last alarm before its deadline.
    const missed = code === null && end <= this.now() && proof + 2 * this.times.check >= end;
    return missed ? end : null;
  }

  // start returns once the container takes commands.
  async start(settings: Settings, labels: Record<string, string>, key: Key): Promise<void> {
    const incarnation = this.store.begin(this.now());
    this.ending = null;
    this.acting++;
    try {
      this.container.start({
        entrypoint: [guest, "keep", "-uid", user, "-gid", user, "-port", String(portNumber), "-deadline", String(settings.deadline_us), "-config", settings.config],
        env: { ...settings.env, [keyVariable]: key.renew() },
        enableInternet: settings.internet,
        labels,
      });
      await this.keepAlive();
      const up = Promise.race([this.ready(key), this.gone(startLimit).then(async () => Promise.reject(new Error((await this.outcome()).why)))]);
      if (!(await within(up, startLimit))) throw new Error(`its guest is not ready after ${startLimit / 1000} s`);
      this.store.alive(this.now());
    } catch (error) {
      this.store.end(incarnation, this.now(), "start_failed", null);
      await this.container.destroy().catch(() => undefined); // it may not be there at all
      throw startFailure(error);
    } finally {
      this.acting--;
    }
  }

  // stop returns once the container is gone. One that does not run is left as it is.
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
      if (last !== null) this.store.end(last.incarnation, this.now(), cause, code);
      this.ending = null;
    } finally {
      this.acting--;
    }
  }

  private async destroy(): Promise<void> {
    try {
      await inTime(this.container.destroy(), destroyLimit, "the platform");
    } catch (error) {
      throw new Failure("unknown_outcome", `end its container: ${text(error)} (retry)`);
    }
  }

  // ready returns once process 1 takes commands: until it listens, connections are refused.
  private async ready(key: Key): Promise<void> {
    const limit = this.now() + startLimit;
    for (;;) {
      try {
        await work(this.container, key, { request: { op: "usage" } });
        return;
      } catch (error) {
        if (this.now() >= limit || this.acting === 0 || !this.container.running) throw error;
        await new Promise((resolve) => setTimeout(resolve, readyPause));
      }
    }
  }

  // gone returns once the container does not run, or after a limit. It ends with the start or stop that waits for it.
  private async gone(ms: number): Promise<void> {
    const limit = this.now() + ms;
    while (this.container.running && this.acting > 0 && this.now() < limit) await scheduler.wait(endPoll);
  }

  // outcome says how a container ended that does not run any more, as far as this object has seen it.
  private async outcome(): Promise<{ code: number | null; why: string }> {
    try {
      await inTime(this.container.monitor(), endLimit, "the platform");
      return { code: 0, why: "it ended with exit code 0" };
    } catch (error) {
      return { code: exitCode(text(error)), why: text(error) };
    }
  }
}

// exitCode takes it out of what monitor() rejects with.
function exitCode(message: string): number | null {
  const match = /exit code: (\d+)/.exec(message);
  return match?.[1] === undefined ? null : Number(match[1]);
}
