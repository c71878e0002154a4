// Reads answers piece by piece, with bounded memory: internal/gateway/llm/scan.go in TypeScript.

// Wanted is a member of a JSON object to keep: outer alone, or inner of outer. A value longer than most bytes is not
// kept.
export interface Wanted {
  outer: string;
  inner?: string;
  most: number;
}

// maxKey limits a key in bytes. A longer one is not wanted.
const maxKey = 64;

const [quote, backslash, colon, comma] = [0x22, 0x5c, 0x3a, 0x2c];
const [openBrace, closeBrace, openBracket, closeBracket] = [0x7b, 0x7d, 0x5b, 0x5d];
const [newline, carriage] = [0x0a, 0x0d];

// Picker reads one JSON value and keeps only wanted members. It does not check the syntax.
export class Picker {
  private got: (number[] | null)[] = [];
  private long: boolean[] = [];
  private depth = 0;
  private kind = [0, 0, 0]; // of depth 1 and 2
  private keys: number[][] = [[], [], []];
  private inString = false;
  private escaped = false;
  private inKey = false;
  private needKey = false;
  private catching = -1; // index of wanted
  private at = 0; // depth of what is caught
  private begun = false;

  constructor(private readonly want: Wanted[]) {
    this.reset();
  }

  // reset prepares for the next value.
  reset(): void {
    this.got = this.want.map(() => null);
    this.long = this.want.map(() => false);
    this.depth = this.at = 0;
    this.catching = -1;
    this.kind = [0, 0, 0];
    this.inString = this.escaped = this.inKey = this.needKey = this.begun = false;
  }

  // whole reports whether a complete object or list was read.
  get whole(): boolean {
    return this.begun && this.depth === 0;
  }

  next(c: number): void {
    if (this.inString) {
      this.keep(c);
      this.text(c);
      return;
    }
    if (this.catching >= 0 && this.depth === this.at && (c === comma || c === closeBrace)) this.catching = -1;
    this.keep(c);
    switch (c) {
      case quote:
        this.inString = true;
        this.inKey = this.needKey;
        if (this.inKey) this.keys[this.depth] = [];
        break;
      case openBrace:
      case openBracket:
        this.begun = true;
        this.depth++;
        this.needKey = false;
        if (this.depth < 3) {
          this.kind[this.depth] = c;
          this.needKey = c === openBrace;
        }
        break;
      case closeBrace:
      case closeBracket:
        this.depth = Math.max(this.depth - 1, 0);
        this.needKey = false;
        break;
      case comma:
        this.needKey = this.depth > 0 && this.depth < 3 && this.kind[this.depth] === openBrace;
        break;
      case colon:
        this.needKey = false;
        this.catch();
    }
  }

  // text reads a byte of a string.
  private text(c: number): void {
    const end = c === quote && !this.escaped;
    this.escaped = c === backslash && !this.escaped;
    if (end) {
      this.inString = this.inKey = false;
      return;
    }
    const key = this.keys[this.depth];
    if (this.inKey && key !== undefined && key.length <= maxKey) key.push(c);
  }

  // catch begins to keep the value that follows, if it is wanted.
  private catch(): void {
    const { depth } = this;
    if (this.catching >= 0 || depth < 1 || depth >= 3) return;
    if (this.kind[depth] !== openBrace || this.kind[1] !== openBrace) return;
    const [outer, inner] = [nameOf(this.keys[1]), depth === 2 ? nameOf(this.keys[2]) : undefined];
    const i = this.want.findIndex((w) => w.outer === outer && w.inner === inner);
    if (i < 0) return;
    this.catching = i;
    this.at = depth;
    this.got[i] = [];
    this.long[i] = false;
  }

  private keep(c: number): void {
    const kept = this.got[this.catching];
    if (kept === undefined || kept === null) return;
    if (kept.length >= (this.want[this.catching]?.most ?? 0)) this.long[this.catching] = true;
    else kept.push(c);
  }

  // value returns a wanted member as JSON: null if it is absent, null or too long.
  value(i: number): string | null {
    const kept = this.got[i];
    if (kept === undefined || kept === null || this.long[i]) return null;
    const text = decode(kept).trim();
    return text === "" || text === "null" ? null : text;
  }

  // string returns a wanted member that is a string, "" for any other.
  string(i: number): string {
    const text = this.value(i);
    const value = text === null ? "" : parsed(text);
    return typeof value === "string" ? value : "";
  }
}

function decode(bytes: number[]): string {
  return new TextDecoder().decode(new Uint8Array(bytes));
}

// nameOf returns a key of JSON with its escapes decoded.
function nameOf(bytes: number[] | undefined): string {
  const key = decode(bytes ?? []);
  const value = bytes?.includes(backslash) ? parsed(`"${key}"`) : key;
  return typeof value === "string" ? value : key;
}

// parsed returns undefined for text that is not JSON.
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

// maxHeld limits the bytes of an event that is held back; a dropped event is far smaller. maxHead limits the kept
// beginning of its data.
const maxHeld = 64 << 10;
const maxHead = 16;

const data = [...new TextEncoder().encode("data:")];

// Events reads a stream of server-sent events, and gives each event's data to a picker.
export class Events {
  hasData = false;
  held: number[] = [];
  private head: number[] = [];
  private line = 0; // bytes of the line that match "data:"; -1 after a mismatch
  private read = 0; // bytes read of the line, at most the length of "data:"
  private inData = false;
  private blank = true;
  private passing = false; // the event is too large to be held

  // ended is called at the end of each event that has data. It reports whether the client must not get the event. With
  // holding, events are held back until their end, so that they can be dropped.
  constructor(
    private readonly picker: Picker,
    private readonly holding: boolean,
    private readonly ended: (head: string) => boolean,
  ) {}

  // write reads a piece, and returns what the client gets now.
  write(piece: Uint8Array): Uint8Array {
    if (!this.holding) {
      for (const c of piece) this.next(c);
      return piece;
    }
    const out: number[] = [];
    for (const c of piece) {
      if (this.passing) out.push(c);
      else this.held.push(c);
      const end = this.next(c);
      if (end !== null) {
        if (end === "keep") for (const b of this.held) out.push(b);
        this.held = [];
        this.passing = false;
      } else if (this.held.length > maxHeld) {
        for (const b of this.held) out.push(b);
        this.held = [];
        this.passing = true;
      }
    }
    return new Uint8Array(out);
  }

  // begun returns the beginning of the current event's data.
  get begun(): string {
    return decode(this.head);
  }

  // next reads a byte. At the end of an event it returns whether the client gets the event.
  private next(c: number): "keep" | "drop" | null {
    if (c === newline) return this.endLine();
    if (c !== carriage) this.blank = false;
    if (this.inData) {
      if (this.head.length < maxHead) this.head.push(c);
      this.picker.next(c);
    } else if (this.read < data.length) {
      if (this.line >= 0) this.line = c === data[this.line] ? this.line + 1 : -1;
      this.read++;
      if (this.line === data.length) this.inData = this.hasData = true;
    }
    return null;
  }

  private endLine(): "keep" | "drop" | null {
    const end = this.blank;
    if (this.inData) this.picker.next(newline);
    this.line = this.read = 0;
    this.inData = false;
    this.blank = true;
    if (!end) return null;
    if (!this.hasData) return "keep";
    const drop = this.ended(this.begun.trim());
    this.picker.reset();
    this.head = [];
    this.hasData = false;
    return drop ? "drop" : "keep";
  }
}
