// Authenticates requests. The executor signs them with the key that this Worker was deployed with. The Go side is
// signature.go; its tests run both sides against each other.
//
//   X-Sandbox-Time       time of the signature, in milliseconds of Unix time
//   X-Sandbox-Content    the SHA-256 of the body in hexadecimal
//   X-Sandbox-Signature  HMAC-SHA256 in hexadecimal of "v1", method, path with query, time and content, one per line

import { Failure } from "./errors";

// validity is how far the signer's clock may differ from this Worker's, in milliseconds in each direction. Within this
// time a request can be replayed. Every request is idempotent, and a command runs once for its id.
const validity = 60_000;

// maxBody is the maximum size of a body that is read whole, in bytes: settings have a config.json of at most 96 KiB.
const maxBody = 1 << 20;

const encoder = new TextEncoder();

// Signed is a request with a valid signature. content is the signed digest of its body.
export interface Signed {
  content: string;
}

// keysOf returns the keys that this Worker accepts.
export function keysOf(env: { SIGNING_KEY?: string; SIGNING_KEY_OLDER?: string }): string[] {
  return [env.SIGNING_KEY, env.SIGNING_KEY_OLDER].filter((key) => key !== undefined && key !== "") as string[];
}

export async function authenticate(request: Request, secrets: string[], now: number): Promise<Signed> {
  if (secrets.length === 0) {
    throw new Failure("unavailable", "this Worker has no SIGNING_KEY, so it refuses every request: deploy it again");
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

// One message for all causes, so that a caller without the key does not learn what is wrong.
function refused(): Failure {
  const key = "the request is not signed with this Worker's key";
  return new Failure("unauthenticated", `${key}, or was not signed within a minute of this Worker's clock`);
}

// wholeBody returns the body of a request, if it is the signed one.
export async function wholeBody(request: Request, signed: Signed): Promise<Uint8Array> {
  const body = new Uint8Array(await request.arrayBuffer());
  if (body.length > maxBody) {
    throw new Failure("invalid", `the body has ${body.length} bytes; the maximum is ${maxBody}`);
  }
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
