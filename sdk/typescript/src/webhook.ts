import { SandboxError, type Code } from "./errors.js";
import { fromBase64, toBase64 } from "./output.js";

/** How far the time of a message may be in the past or in the future, in seconds. */
export const tolerance = 300;

/** Returns the headers that sign a message of Standard Webhooks at a time in Unix seconds, by default now. */
export async function sign(
  secret: string,
  id: string,
  body: string | Uint8Array,
  at: number = Date.now() / 1000,
): Promise<Record<string, string>> {
  checkId(id, "invalid");
  const timestamp = String(Math.floor(at));
  const mac = await crypto.subtle.sign("HMAC", await keyOf(secret), signed(id, timestamp, body));
  return {
    "webhook-id": id,
    "webhook-timestamp": timestamp,
    "webhook-signature": "v1," + toBase64(new Uint8Array(mac)),
  };
}

/**
 * Returns the id of a message that one of the secrets signs. Anything else is an error, "unauthenticated". The body must be
 * the bytes that arrived. A repeated id means that the message was sent again.
 */
export async function verify(
  secrets: string | string[],
  headers: Headers | Record<string, string>,
  body: string | Uint8Array,
  now: number = Date.now() / 1000,
): Promise<string> {
  const all = headers instanceof Headers ? headers : new Headers(headers); // joins headers that come twice with a comma
  const [id, timestamp, signatures] = ["webhook-id", "webhook-timestamp", "webhook-signature"].map((name) => {
    const value = all.get(name);
    if (value === null) throw refused(`header ${name} is missing`);
    return value;
  }) as [string, string, string];
  checkId(id, "unauthenticated");
  if (!/^(0|[1-9][0-9]{0,17})$/.test(timestamp)) throw refused(`timestamp "${timestamp}" is not in Unix seconds`);
  const age = now - Number(timestamp);
  if (Math.abs(age) > tolerance) {
    throw refused(`message ${id} was signed ${Math.round(age)} s away from this clock, more than ${tolerance} s`);
  }
  const list = signatures.split(/\s+/).filter((signature) => signature !== "");
  if (list.length > 32) throw refused(`message ${id} has ${list.length} signatures, more than 32`);
  for (const secret of typeof secrets === "string" ? [secrets] : secrets) {
    const key = await keyOf(secret);
    for (const signature of list) {
      const mac = signature.startsWith("v1,") ? strictBase64(signature.slice(3)) : undefined;
      if (mac && (await crypto.subtle.verify("HMAC", key, mac, signed(id, timestamp, body)))) return id;
    }
  }
  throw refused(`no signature of message ${id} matches a secret`);
}

function keyOf(secret: string): Promise<CryptoKey> {
  if (!secret.startsWith("whsec_")) {
    throw new SandboxError("invalid", 'a webhook secret must start with "whsec_"');
  }
  const key = strictBase64(secret.slice("whsec_".length));
  if (key === undefined) {
    throw new SandboxError("invalid", 'a webhook secret must be "whsec_" and base64: this one is not base64');
  }
  if (key.length < 24 || key.length > 64) {
    throw new SandboxError("invalid", `a webhook secret must have 24 to 64 random bytes, but this one has ${key.length}`);
  }
  return crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign", "verify"]);
}

function strictBase64(text: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    const bytes = fromBase64(text);
    return toBase64(bytes) === text ? bytes : undefined;
  } catch {
    return undefined;
  }
}

function signed(id: string, timestamp: string, body: string | Uint8Array): Uint8Array<ArrayBuffer> {
  const head = new TextEncoder().encode(`${id}.${timestamp}.`);
  const rest = typeof body === "string" ? new TextEncoder().encode(body) : body;
  const all = new Uint8Array(head.length + rest.length);
  all.set(head);
  all.set(rest, head.length);
  return all;
}

function checkId(id: string, code: Code): void {
  if (!/^[!-\-/-~]{1,256}$/.test(id)) {
    throw new SandboxError(code, "webhook-id: must be 1 to 256 visible ASCII characters without '.'");
  }
}

function refused(message: string): SandboxError {
  return new SandboxError("unauthenticated", "webhook: " + message);
}
