// Reads the usage of a call from its answer: internal/gateway/llm/usage.go in TypeScript. A test runs its
// testdata/calls.json on both.

import { noTokens, type Tokens } from "./price";
import type { Dialect } from "./request";
import { Events, parsed, Picker } from "./scan";

// maxCount is the largest plausible count of tokens. maxUsage limits a usage object in bytes.
const maxCount = 1_000_000_000;
const maxUsage = 64 << 10;

// wanted are the members of an answer, in this order.
const wanted = [
  { outer: "usage", most: maxUsage },
  { outer: "type", most: 64 },
  { outer: "choices", most: 16 },
  { outer: "response", inner: "usage", most: maxUsage },
  { outer: "message", inner: "usage", most: maxUsage },
  { outer: "delta", inner: "stop_reason", most: 64 },
];
const [atUsage, atType, atChoices, atResponseUsage, atMessageUsage, atStopReason] = [0, 1, 2, 3, 4, 5];

// Meter reads an answer.
export class Meter {
  tokens: Tokens = noTokens;
  seen = false; // tokens has at least the input
  bad = false; // the upstream sent counts that cannot be right
  done = false; // the answer's own end was read
  private final = false; // tokens is complete
  private readonly picker = new Picker(wanted);
  private readonly events: Events | null;

  // With hide, the client does not get the chunk that has only the usage.
  constructor(
    readonly dialect: Dialect,
    stream: boolean,
    hide: boolean,
  ) {
    this.events = stream ? new Events(this.picker, hide && dialect === "chat", (head) => this.event(head)) : null;
  }

  // known reports whether tokens is what the call used.
  get known(): boolean {
    return this.final && !this.bad;
  }

  // write reads a piece of the answer, and returns what the client gets now.
  write(piece: Uint8Array): Uint8Array {
    if (this.events !== null) return this.events.write(piece);
    for (const c of piece) this.picker.next(c);
    if (!this.done && this.picker.whole) {
      this.read(this.picker.value(atUsage));
      this.final = this.seen || this.dialect === "counting";
      this.done = true;
    }
    return piece;
  }

  // end reads the end of an answer that arrived completely. It returns the rest for the client, and whether the answer
  // counts as complete.
  end(): { rest: Uint8Array; whole: boolean } {
    if (this.events === null) return { rest: new Uint8Array(), whole: true };
    const drop = this.events.hasData && this.event(this.events.begun); // the last event lacks its blank line
    if (this.dialect === "chat" && this.seen) this.final = true; // without [DONE], which some upstreams omit
    const rest = new Uint8Array(drop ? [] : this.events.held);
    return { rest, whole: this.done || this.dialect === "chat" || this.dialect === "embeddings" };
  }

  // event reads an event of a stream. It reports whether the client must not get it.
  private event(head: string): boolean {
    const { picker, dialect } = this;
    const type = picker.string(atType);
    if (dialect === "responses") {
      if (["response.completed", "response.incomplete", "response.failed"].includes(type)) {
        this.read(picker.value(atResponseUsage));
        this.done = true;
        this.final = this.seen;
      }
    } else if (dialect === "messages") {
      if (type === "message_start") this.read(picker.value(atMessageUsage));
      if (type === "message_delta") {
        this.read(picker.value(atUsage));
        this.final = this.seen && picker.string(atStopReason) !== "";
      }
      if (type === "message_stop") this.done = true;
    } else if (head === "[DONE]") {
      this.done = true;
      this.final = this.seen;
    } else {
      const usage = picker.value(atUsage);
      this.read(usage);
      if (picker.value(atChoices) === "[]" && usage !== null) {
        this.final = this.seen;
        return true;
      }
    }
    return false;
  }

  // read reads a usage object. Later ones complete earlier ones.
  private read(usage: string | null): void {
    if (usage === null) return;
    const c = countsOf(parsed(usage));
    if (c === null) {
      this.bad = true;
      return;
    }
    const t = this.dialect === "messages" ? this.cumulated(c) : this.counted(c);
    if (t === null) return;
    if (Object.values(t).some((n) => n < 0 || n > maxCount)) this.bad = true;
    else this.tokens = t;
  }

  // cumulated returns Anthropic's counts. They are cumulative, and some upstreams repeat the input counts as 0.
  private cumulated(c: Counts): Tokens {
    const later = (n: number, count: number | null) => {
      if (count !== null && count < 0) this.bad = true;
      return Math.max(n, count ?? 0);
    };
    if (c.input_tokens !== null) this.seen = true;
    return {
      input: later(this.tokens.input, c.input_tokens),
      cached_input: later(this.tokens.cached_input, c.cache_read_input_tokens),
      cache_write: later(this.tokens.cache_write, c.cache_creation_input_tokens),
      output: later(this.tokens.output, c.output_tokens),
    };
  }

  private counted(c: Counts): Tokens | null {
    const responses = this.dialect === "responses";
    const input = responses ? c.input_tokens : c.prompt_tokens;
    const counted = responses ? c.output_tokens : c.completion_tokens;
    const details = responses ? c.input_tokens_details : c.prompt_tokens_details;
    if (input === null || (counted === null && this.dialect !== "embeddings")) return null;
    const [cached, written] = [details?.cached_tokens ?? 0, details?.cache_write_tokens ?? 0];
    let output = counted ?? 0;
    if (c.total_tokens !== null && this.dialect !== "embeddings") {
      output = Math.max(output, c.total_tokens - input); // some upstreams count reasoning only there
    }
    this.seen = true;
    return { input: input - cached - written, cached_input: cached, cache_write: written, output };
  }
}

const counted = [
  "prompt_tokens", "completion_tokens", "input_tokens", "output_tokens", "total_tokens", "cache_read_input_tokens",
  "cache_creation_input_tokens",
] as const;
const detailed = ["cached_tokens", "cache_write_tokens"] as const;

type Details = Record<(typeof detailed)[number], number | null>;

// Counts are the upstream's counts in all dialects. Absent ones are null. cache_write_tokens is OpenRouter's, for
// upstreams that charge for it.
type Counts = Record<(typeof counted)[number], number | null> &
  Record<"prompt_tokens_details" | "input_tokens_details", Details | null>;

// countsOf returns null if v is not a usage object.
function countsOf(v: unknown): Counts | null {
  const all = integers(v, counted);
  const of = v as Record<string, unknown>;
  if (all === null) return null;
  const prompt = details(of.prompt_tokens_details);
  const input = details(of.input_tokens_details);
  if (prompt === undefined || input === undefined) return null;
  return { ...all, prompt_tokens_details: prompt, input_tokens_details: input };
}

// details returns undefined if v is not a details object.
function details(v: unknown): Details | null | undefined {
  return v === undefined || v === null ? null : (integers(v, detailed) ?? undefined);
}

// integers reads whole numbers of an object. It returns null if v is not an object, or if one is not a whole number.
function integers<K extends string>(v: unknown, names: readonly K[]): Record<K, number | null> | null {
  if (typeof v !== "object" || v === null || Array.isArray(v)) return null;
  const all = {} as Record<K, number | null>;
  for (const name of names) {
    const n = (v as Record<string, unknown>)[name] ?? null;
    if (n !== null && !Number.isInteger(n)) return null;
    all[name] = n as number | null;
  }
  return all;
}
