// Headers of calls: internal/gateway/llm/header.go in TypeScript.

import type { Call } from "./book";
import type { Route } from "./settings";

// fromSandbox are the headers that the upstream gets from the sandbox. It also gets those that begin with stainless, in
// which the APIs' own clients describe themselves. All others are dropped, above all credentials.
const fromSandbox = ["Accept", "User-Agent", "Anthropic-Version", "Openai-Beta", "Idempotency-Key"];
const stainless = "x-stainless-";

// toSandbox are the headers of an upstream that the sandbox gets. The body has no encoding, because this Worker has
// read it.
const toSandbox = [
  "Content-Type", "Cache-Control", "Retry-After", "Request-Id", "X-Request-Id", "X-Should-Retry", "Openai-Processing-Ms",
];

// refusedBetas are prefixes of the names of features that have another pricing.
const refusedBetas = ["context-1m", "compact-", "fast-mode-"];

// anthropicVersion is the API's only version (read 2026-11).
const anthropicVersion = "2023-06-01";

// upstreamHeaders returns the headers of a request for the upstream.
export function upstreamHeaders(from: Headers, { api, key }: Route, account: string, call: Call): Headers {
  const h = new Headers();
  for (const [name, value] of from) if (name.startsWith(stainless)) h.set(name, value);
  for (const name of fromSandbox) {
    const value = from.get(name);
    if (value) h.set(name, value);
  }
  if (!h.has("User-Agent")) h.set("User-Agent", "sandbox-gateway");
  h.set("Content-Type", "application/json");
  h.set("Accept-Encoding", "identity");
  if (api === "anthropic") {
    const betas = betasOf(from);
    if (betas !== "") h.set("Anthropic-Beta", betas);
    h.set("X-Api-Key", key);
    if (!h.has("Anthropic-Version")) h.set("Anthropic-Version", anthropicVersion);
  } else {
    h.set("Authorization", `Bearer ${key}`);
  }
  h.set("X-Sandbox-Lease", visible(call.lease_id));
  h.set("X-Sandbox-Environment", visible(call.environment_id));
  h.set("X-Sandbox-Agent", visible(call.agent_did));
  h.set("X-Sandbox-Attempt", String(call.generation));
  h.set("X-Sandbox-Account", visible(account));
  h.set("X-Sandbox-Call", call.id);
  if (call.session !== "") h.set(sessionHeader, call.session);
  return h;
}

const sessionHeader = "X-Sandbox-Session";

// sessionOf returns the session that the agent names, "" if it names none or an invalid one
// (sandbox.CheckSessionLabel).
export function sessionOf(from: Headers): string {
  const value = from.get(sessionHeader) ?? "";
  return /^[A-Za-z0-9._:-]{0,128}$/.test(value) ? value : "";
}

function betasOf(from: Headers): string {
  const all = (from.get("Anthropic-Beta") ?? "").split(",").map((v) => v.trim());
  return all.filter((v) => v !== "" && !refusedBetas.some((p) => v.toLowerCase().startsWith(p))).join(",");
}

// visible escapes all bytes that a header must not have, and '%'.
function visible(text: string): string {
  let out = "";
  for (const c of new TextEncoder().encode(text)) {
    const plain = c > 0x20 && c <= 0x7e && c !== 0x25;
    out += plain ? String.fromCharCode(c) : `%${c.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return out;
}

// answerHeaders returns the headers that the sandbox gets.
export function answerHeaders(from: Headers): Headers {
  const h = new Headers();
  for (const name of toSandbox) {
    const value = from.get(name);
    if (value !== null) h.set(name, value);
  }
  return h;
}
