// Who may ask: requests are signed by the executor with the key that this Worker was deployed with. The
// other side is signature.go; its tests run both against each other.
//
//   X-Sandbox-Time       when it was signed, in milliseconds of Unix time
//   X-Sandbox-Content    the SHA-256 of the body in hexadecimal
//   X-Sandbox-Signature  HMAC-SHA256 in hexadecimal of "v1", method, path with query, time and content, a line each

import { Failure } from "./errors";

// validity is how far the clock of a request's signer may be from this one, in milliseconds either way. Within
// it a request may be repeated; every one is idempotent, and a command is run under its id once.
const validity = 60_000;

// maxBody bounds a body that is read whole: settings, whose config.json has at most 96 KiB.
const maxBody = 1 << 20;

const encoder = new TextEncoder();

// Signed is a request whose signature holds.
export interface Signed {
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
    const key = await crypto.subtle.importKey("raw", encoder.encode(secret), { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
    if (await crypto.subtle.verify("HMAC", key, signature, encoder.encode(claim))) return { content };
  }
  throw refused();
}

// One message for everything: what is wrong with a signature is nobody's business.
function refused(): Failure {
  return new Failure("unauthenticated", "the request is not signed with this Worker's key, or not within the last minute by this Worker's clock");
}

// wholeBody returns the body that a request was signed with.
export async function wholeBody(request: Request, signed: Signed): Promise<Uint8Array> {
  const body = new Uint8Array(await request.arrayBuffer());
  if (body.length > maxBody) throw new Failure("invalid", `the body has ${body.length} bytes; at most ${maxBody} are taken`);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", body));
  if (signed.content !== toHex(digest)) throw refused();
  return body;
}

function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}

function fromHex(hex: string): Uint8Array | null {
  if (!/^([0-9a-f]{2}){32}$/.test(hex)) return null;
  return Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}
