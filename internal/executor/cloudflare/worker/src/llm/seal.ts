// Encrypts the keys of models for D1, whose rows the account's members can read. The key is derived from the Worker's
// signing key, which Cloudflare never shows.

const encoder = new TextEncoder();

// seal encrypts a text. unseal must use the same context.
export async function seal(signingKey: string, context: string, text: string): Promise<string> {
  const iv = crypto.getRandomValues(new Uint8Array(12));
  const key = await derived(signingKey, ["encrypt"]);
  const sealed = await crypto.subtle.encrypt({ name: "AES-GCM", iv, additionalData: encoder.encode(context) }, key, encoder.encode(text));
  return `${base64(iv)}.${base64(new Uint8Array(sealed))}`;
}

// unseal tries each signing key. It returns null if none opens the text.
export async function unseal(signingKeys: string[], context: string, sealed: string): Promise<string | null> {
  const [iv = "", text = ""] = sealed.split(".");
  for (const signingKey of signingKeys) {
    try {
      const key = await derived(signingKey, ["decrypt"]);
      const algorithm = { name: "AES-GCM", iv: bytes(iv), additionalData: encoder.encode(context) };
      return new TextDecoder().decode(await crypto.subtle.decrypt(algorithm, key, bytes(text)));
    } catch {
      // another key may open it
    }
  }
  return null;
}

async function derived(signingKey: string, uses: ("encrypt" | "decrypt")[]): Promise<CryptoKey> {
  const base = await crypto.subtle.importKey("raw", encoder.encode(signingKey), "HKDF", false, ["deriveKey"]);
  const hkdf = { name: "HKDF", hash: "SHA-256", salt: new Uint8Array(), info: encoder.encode("keys of models") };
  return crypto.subtle.deriveKey(hkdf, base, { name: "AES-GCM", length: 256 }, false, uses);
}

function base64(b: Uint8Array): string {
  let text = "";
  for (const c of b) text += String.fromCharCode(c);
  return btoa(text);
}

function bytes(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}
