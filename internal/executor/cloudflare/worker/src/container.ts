// One container, its lives and their records.

import { Failure, startFailure, text } from "./errors";
import { type Key, keyVariable, portNumber, work } from "./port";
import type { Settings } from "./settings";
import type { Cause, Store } from "./store";
import { inTime, within } from "./wait";

// stopGrace is what a container gets to end by itself, in milliseconds. The guest gives its programs 8 s.
const stopGrace = 10_000;

// destroyLimit bounds the wait for the platform to end a container, in milliseconds.
const destroyLimit = 30_000;

// startLimit bounds the wait for the guest, in milliseconds. Starts at Cloudflare take seconds.
const startLimit = 60_000;

// guest is where an image has the guest, and user whom it runs commands as.
const guest = "/.sandbox/guest";
const user = "1000";

// readyPause is between two looks at a container that starts, in milliseconds.
const readyPause = 20;

// exitDeadline is the exit code of a guest whose deadline has come (internal/guest/cmd/guest/init.go).
const exitDeadline = 124;

// Box starts and stops the container. Its caller sees to it that only one call is under way.
export class Box {
  // life ends with the container, whoever ended it; null while none runs.
  private life: Promise<void> | null = null;
  // ending is why it is being stopped; null for a container that ends by itself.
  private ending: Cause | null = null;

  constructor(
    private readonly container: Container,
    private readonly store: Store,
    private readonly now: () => number,
    // onEnd is called when a container has ended by itself.
    private readonly onEnd: () => void,
  ) {}

  get running(): boolean {
    return this.container.running;
  }

  // lives: it runs, or its end is not recorded yet. The platform tells of an end before the watch has recorded it.
  get lives(): boolean {
    return this.container.running || this.life !== null;
  }

  // resume takes up what a Durable Object before this one left. It may have missed the end.
  resume(): void {
    const last = this.store.lastPeriod();
    if (last === null || last.stopped_at !== null) return;
    if (this.container.running) this.watch(last.incarnation);
    else this.store.end(last.incarnation, this.now(), "crash", null);
  }

  // start returns once the container takes commands.
  async start(settings: Settings, labels: Record<string, string>, key: Key): Promise<void> {
    const incarnation = this.store.begin(this.now());
    this.ending = "start_failed";
    try {
      this.container.start({
        entrypoint: [guest, "keep", "-uid", user, "-gid", user, "-port", String(portNumber), "-deadline", String(settings.deadline_us), "-config", settings.config],
        env: { ...settings.env, [keyVariable]: key.renew() },
        enableInternet: settings.internet,
        labels,
      });
      const ended = this.watch(incarnation);
      const up = Promise.race([this.ready(key), ended.then((why) => Promise.reject(new Error(why)))]);
      if (!(await within(up, startLimit))) throw new Error(`its guest is not ready after ${startLimit / 1000} s`);
      this.ending = null;
    } catch (error) {
      this.store.end(incarnation, this.now(), "start_failed", null);
      await this.container.destroy().catch(() => undefined); // it may not be there at all
      throw startFailure(error);
    }
  }

  // stop returns once the container is gone. One that does not run is left as it is.
  async stop(cause: Cause): Promise<void> {
    const life = this.life;
    if (life === null && !this.container.running) return;
    this.ending = cause;
    if (cause !== "kill" && this.container.running && life !== null) {
      this.container.signal(15);
      await within(life, stopGrace);
    }
    await this.destroy();
    if (life !== null) await within(life, stopGrace);
    const last = this.store.lastPeriod();
    if (last !== null) this.store.end(last.incarnation, this.now(), cause, null); // unless the watch has
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
        if (this.now() >= limit || this.ending === "kill") throw error;
        await new Promise((resolve) => setTimeout(resolve, readyPause));
      }
    }
  }

  // watch records the end of a life, and resolves to what is known of it.
  private watch(incarnation: number): Promise<string> {
    const ended = this.container.monitor().then(
      () => ({ code: 0 as number | null, why: "it ended with exit code 0" }),
      (error: unknown) => ({ code: exitCode(text(error)), why: text(error) }),
    );
    const recorded = ended.then(({ code, why }) => {
      this.store.end(incarnation, this.now(), this.ending ?? (code === exitDeadline ? "deadline" : "crash"), code);
      this.life = null;
      if (this.ending === null) this.onEnd();
      return why;
    });
    this.life = recorded.then(() => undefined);
    return recorded;
  }
}

// exitCode takes it out of what monitor() rejects with.
function exitCode(message: string): number | null {
  const match = /exit code: (\d+)/.exec(message);
  return match?.[1] === undefined ? null : Number(match[1]);
}
