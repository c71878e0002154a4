// Who may ask: requests are signed by the executor with the key that this Worker was deployed with. The
// other side is signature.go; its tests run both against each other.
//
//   X-Sandbox-Time       when it was signed, in milliseconds of Unix time
//   X-Sandbox-Content    the SHA-256 of the body in hexadecimal, or "chunks"
//   X-Sandbox-Signature  HMAC-SHA256 in hexadecimal of "v1", method, path with query, time and content, a line each
//
// A body of chunks is not known when its request is signed. Each chunk is four bytes of length (big endian),
// 32 bytes HMAC-SHA256 of the signature before and the payload, and the payload; the first one follows on the
// request's signature. A chunk without payload is the end: a body that breaks off has none.

import { Failure } from "./errors";

// validity is how far the clock of a request's signer may be from this one, in milliseconds either way. Within
// it a request may be repeated; every one is idempotent, and a command is run under its id once.
const validity = 60_000;

const headerSize = 4 + 32;
const maxChunk = 64 << 10;
// maxBody bounds a body that is read whole: settings, whose config.json has at most 96 KiB.
const maxBody = 1 << 20;

const encoder = new TextEncoder();

// Signed is a request whose signature holds.
export interface Signed {
  key: CryptoKey;
  signature: Uint8Array;
  content: string;
}

// keysOf returns the keys that a Worker accepts.
export function keysOf(env: { SIGNING_KEY?: string; SIGNING_KEY_OLDER?: string }): string[] {
  return [env.SIGNING_KEY, env.SIGNING_KEY_OLDER].filter((key) => key !== undefined && key !== "") as string[];
}

export async function authenticate(request: Request, secrets: string[], now: number): Promise<Signed> {
  if (secrets.length === 0) {
    throw new Failure("unavailable", "this Worker has no SIGNING_KEY, so it answers nobody: deploy it again");
  }
  const time = request.headers.get("X-Sandbox-Time") ?? "";
  const content = request.headers.get("X-Sandbox-Content") ?? "";
  const signature = fromHex(request.headers.get("X-Sandbox-Signature") ?? "");
  const url = new URL(request.url);
  const claim = ["v1", request.method, url.pathname + url.search, time, content].join("\n");
  if (signature === null || !(Math.abs(now - Number(time)) <= validity)) throw refused();
  for (const secret of secrets) {
    const key = await crypto.subtle.importKey("raw", encoder.encode(secret), { name: "HMAC", hash: "SHA-256" }, false, ["sign", "verify"]);
    if (await crypto.subtle.verify("HMAC", key, signature, encoder.encode(claim))) return { key, signature, content };
  }
  throw refused();
}

// One message for everything: what is wrong with a signature is nobody's business.
function refused(): Failure {
  return new Failure("unauthenticated", "the request is not signed with this Worker's key, or not within the last minute by this Worker's clock");
}

// wholeBody returns a body that was known when its request was signed.
export async function wholeBody(request: Request, signed: Signed): Promise<Uint8Array> {
  const body = new Uint8Array(await request.arrayBuffer());
  if (body.length > maxBody) throw new Failure("invalid", `the body has ${body.length} bytes; at most ${maxBody} are taken`);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", body));
  if (signed.content !== toHex(digest)) throw refused();
  return body;
}

// Chunks are the payloads of a body of chunks, in order.
export class Chunks {
  private readonly reader: ReadableStreamDefaultReader<Uint8Array>;
  private readonly signed: Signed;
  private previous: Uint8Array;
  private pending = new Uint8Array(0);

  constructor(request: Request, signed: Signed) {
    if (signed.content !== "chunks" || request.body === null) throw new Failure("invalid", "the body must come in signed chunks");
    this.reader = request.body.getReader();
    this.signed = signed;
    this.previous = signed.signature;
  }

  // next returns the next payload, and null at the signed end.
  async next(): Promise<Uint8Array | null> {
    const header = await this.take(headerSize);
    const length = new DataView(header.buffer, header.byteOffset).getUint32(0);
    if (length > maxChunk) throw new Failure("invalid", `a chunk has ${length} bytes; at most ${maxChunk} are taken`);
    const mac = header.slice(4);
    const payload = await this.take(length);
    const claim = new Uint8Array(mac.length + length);
    claim.set(this.previous);
    claim.set(payload, mac.length);
    if (!(await crypto.subtle.verify("HMAC", this.signed.key, mac, claim))) throw refused();
    this.previous = mac;
    return length === 0 ? null : payload;
  }

  // release leaves the rest of the body to others.
  release(): void {
    this.reader.releaseLock();
  }

  // closed returns once the body has ended, or has broken off. What may still come is not read.
  async closed(): Promise<void> {
    try {
      while (!(await this.reader.read()).done);
    } catch {
      // It has broken off.
    }
  }

  private async take(n: number): Promise<Uint8Array> {
    while (this.pending.length < n) {
      const { done, value } = await this.reader.read();
      if (done) throw new Failure("invalid", "the body ends before its signed end");
      const more = new Uint8Array(this.pending.length + value.length);
      more.set(this.pending);
      more.set(value, this.pending.length);
      this.pending = more;
    }
    const taken = this.pending.slice(0, n);
    this.pending = this.pending.subarray(n);
    return taken;
  }
}

function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}

function fromHex(hex: string): Uint8Array | null {
  if (!/^([0-9a-f]{2}){32}$/.test(hex)) return null;
  return Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}
