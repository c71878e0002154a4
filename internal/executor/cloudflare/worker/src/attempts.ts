// The network attempts of one sandbox with a restricted network. Its Durable Object decides and logs each attempt here.
// The request itself goes through outbound.ts, not through this object.

import { text } from "./errors";
import { type Line, maxLines, type Networks } from "./networks";
import { checkHost, type Egress, type Refusal } from "./policy";

// Who identifies the sandbox that makes an attempt.
export interface Who {
  ledger: string;
  environment: string;
  sandbox: string;
  agent: string;
}

// Target is the destination of a request. upgrade is its Upgrade header, "" without one.
export interface Target {
  protocol: "http" | "tls";
  host: string;
  port: number;
  upgrade: string;
}

// Decision allows an attempt, under an id, or refuses it.
export type Decision = { id: string } | { refusal: Refusal };

// Ending says how an allowed attempt ended. failure says why the host was not reached. sent and received are in bytes.
export interface Ending {
  failure?: Refusal;
  sent: number;
  received: number;
}

interface Open extends Target {
  began: number;
  opened: boolean;
}

// rulesHold is how long rules are cached, in milliseconds. Changed rules take effect within this time.
const rulesHold = 2000;

// maxOpen bounds the concurrent attempts of a sandbox. An older attempt than openLife, in milliseconds, leaves room for
// new ones: its end may never be reported, because the platform cancels a request whose client has gone.
const maxOpen = 256;
const openLife = 3600_000;

// perSecond and burst limit how many lines a sandbox logs. Lines above the limit are dropped, and the log records how
// many.
const perSecond = 50;
const burst = 1000;

// flushAfter is how long a line waits for others to share its write, in milliseconds. maxWaiting bounds the lines that
// wait while D1 fails.
const flushAfter = 1000;
const maxWaiting = 5000;

const maxHost = 260;
const maxDetail = 512;

export class Attempts {
  private readonly open = new Map<string, Open>();
  private rules: { of: Promise<Egress | null>; until: number } | null = null;
  private waiting: Line[] = [];
  private dropped = 0;
  private tokens = burst;
  private refilled = 0;
  // sending is the batch being written. After a failed write D1 may or may not have it, so the retry uses the same id.
  private sending: { id: string; lines: Line[] } | null = null;
  private flushing: Promise<void> | null = null;

  constructor(
    private readonly networks: Networks,
    private readonly now: () => number,
    private readonly hold: (p: Promise<unknown>) => void,
  ) {}

  // decide fails closed: it refuses the attempt if the rules cannot be read.
  async decide(who: Who, target: Target): Promise<Decision> {
    const id = crypto.randomUUID();
    this.open.set(id, { ...target, began: this.now(), opened: false }); // counts while the rules are read
    const refusal = await this.refusal(who, target);
    if (refusal === null) return { id };
    this.open.delete(id);
    this.log(who, { ...said(target), kind: "closed", attempt: id, verdict: "refused", ...refusal });
    return { refusal };
  }

  private async refusal(who: Who, { protocol, host, port, upgrade }: Target): Promise<Refusal | null> {
    if (this.open.size > maxOpen) this.expire(who);
    if (this.open.size > maxOpen) {
      return { reason: "too_many_connections", detail: `the sandbox has ${maxOpen} open requests: end one first` };
    }
    let egress: Egress | null;
    try {
      egress = await this.current(who);
    } catch (error) {
      return { reason: "no_policy", detail: `the environment's rules cannot be read: ${text(error)}` };
    }
    const refusal = checkHost(egress, host, port);
    if (refusal !== null) return refusal;
    if (protocol === "http" && port === 443) {
      return { reason: "not_tls", detail: `port 443 of ${host} accepts TLS only` };
    }
    if (upgrade !== "" && upgrade.toLowerCase() !== "websocket") {
      const detail = `a connection may only be upgraded to websocket, not to ${upgrade.slice(0, 64)}`;
      return { reason: "upgrade_refused", detail };
    }
    return null;
  }

  // expire ends attempts whose end was never reported.
  private expire(who: Who): void {
    for (const [id, { began }] of this.open) {
      if (began > this.now() - openLife) return; // the oldest come first
      this.ended(who, id, { sent: 0, received: 0 });
    }
  }

  private current({ ledger, environment }: Who): Promise<Egress | null> {
    if (this.rules === null || this.rules.until <= this.now()) {
      const of = this.networks.rules(ledger, environment);
      const rules = { of, until: this.now() + rulesHold };
      this.rules = rules;
      of.catch(() => {
        if (this.rules === rules) this.rules = null; // the next attempt retries
      });
    }
    return this.rules.of;
  }

  // reached logs that the host has answered.
  reached(who: Who, id: string): void {
    const attempt = this.open.get(id);
    if (attempt === undefined || attempt.opened) return;
    attempt.opened = true;
    this.log(who, { ...said(attempt), kind: "opened", attempt: id, verdict: "allowed" });
  }

  // ended logs the end of an attempt.
  ended(who: Who, id: string, { failure, sent, received }: Ending): void {
    const attempt = this.open.get(id);
    if (attempt === undefined) return;
    this.open.delete(id);
    const verdict = attempt.opened ? "allowed" : "failed";
    const figures = { sent, received, duration_ms: this.now() - attempt.began };
    this.log(who, { ...said(attempt), kind: "closed", attempt: id, verdict, ...failure, ...figures });
  }

  private log(who: Who, line: Omit<Line, "at" | "sandbox">): void {
    const at = this.now();
    this.tokens = Math.min(burst, this.tokens + ((at - this.refilled) * perSecond) / 1000);
    this.refilled = at;
    if (this.tokens < 1 || this.waiting.length >= maxWaiting) {
      this.dropped++;
    } else {
      this.tokens--;
      const [host, detail] = [line.host?.slice(0, maxHost), line.detail?.slice(0, maxDetail)];
      this.waiting.push({ ...line, at, sandbox: who.sandbox, agent: who.agent, host, detail });
    }
    if (this.flushing !== null) return;
    this.flushing = this.flushLater(who);
    this.hold(this.flushing);
  }

  private async flushLater(who: Who): Promise<void> {
    await scheduler.wait(flushAfter);
    try {
      await this.flush(who);
    } finally {
      this.flushing = null;
    }
  }

  // flush writes the waiting lines to D1. It never rejects: after a failure the lines wait for the next flush.
  async flush(who: Who): Promise<void> {
    while (this.sending !== null || this.waiting.length > 0 || this.dropped > 0) {
      this.sending ??= { id: crypto.randomUUID(), lines: this.nextLines(who) };
      const { id, lines } = this.sending;
      try {
        await this.networks.append(who.ledger, who.environment, id, lines, this.now());
      } catch (error) {
        console.error(`log of sandbox ${who.sandbox}: ${text(error)}`);
        return;
      }
      if (this.sending?.id === id) this.sending = null;
    }
  }

  private nextLines(who: Who): Line[] {
    const lines = this.waiting.splice(0, maxLines);
    if (lines.length < maxLines && this.dropped > 0) {
      lines.push({ kind: "dropped", at: this.now(), sandbox: who.sandbox, count: this.dropped });
      this.dropped = 0;
    }
    return lines;
  }
}

function said({ protocol, host, port }: Target): Pick<Line, "protocol" | "host" | "port"> {
  return { protocol, host, port };
}
