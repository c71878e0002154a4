// Checks requests: internal/gateway/llm/request.go in TypeScript. A test runs its testdata/calls.json on both.

import { encode, has, itemsOf, type Members, membersOf, read, stringsIn, unescape } from "./json";
import { costOf, mostInput, noTokens, type Tokens, totalOf } from "./price";
import { type Refused, refuse } from "./refusal";
import type { Api, Model, Route } from "./settings";

// Dialect is the form of an endpoint's requests and answers. counting only counts the tokens of messages and costs
// nothing.
export type Dialect = "chat" | "responses" | "embeddings" | "messages" | "counting";

// endpoints are the paths that calls may use.
export const endpoints: Record<Api, Record<string, Dialect>> = {
  openai: { "/v1/chat/completions": "chat", "/v1/responses": "responses", "/v1/embeddings": "embeddings" },
  openrouter: { "/v1/chat/completions": "chat", "/v1/embeddings": "embeddings" },
  anthropic: { "/v1/messages": "messages", "/v1/messages/count_tokens": "counting" },
};

// Checked is a checked request, as the upstream gets it.
export interface Checked {
  model: string;
  body: Uint8Array;
  // most is the maximum of tokens that the call can use, in the most expensive price classes. cost is their price.
  most: Tokens;
  cost: number;
  // stream: the client wants a stream. hide: it did not ask for the chunk with the usage.
  stream: boolean;
  hide: boolean;
}

// check throws Refused for a call that cannot be priced by its tokens.
export function check(body: Uint8Array, route: Route, name: string, dialect: Dialect): Checked {
  const o = object(() => membersOf(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body)), "the body");
  const model = read(o, "model", "string") ?? "";
  const priced = Object.hasOwn(route.models, model) ? route.models[model] : undefined;
  if (priced === undefined) {
    const allowed = Object.keys(route.models).sort().join(", ");
    throw refuse(403, "model_not_allowed", `route ${name} does not allow model ${model.slice(0, 128)}: it allows ${allowed}`);
  }
  checkCommon(o);
  checkTools(o, dialect);
  checkApi(o, route.api, dialect);
  const { stream, hide } = setStream(o, route.api, dialect);
  return { model, stream, hide, ...bound(o, priced, dialect) };
}

function object(parse: () => Members, what: string): Members {
  try {
    return parse();
  } catch (why) {
    const problem = typeof why === "string" ? why : "it is not text in UTF-8";
    throw refuse(400, "invalid", `${what} cannot be read: ${problem}`);
  }
}

function unsupported(what: string): Refused {
  return refuse(400, "unsupported", `${what}: the gateway allows only calls that it can price by their tokens`);
}

// elsewhere are parameters that route a call to another place or model. LiteLLM and OpenRouter have them.
const elsewhere = [
  "models", "plugins", "preset", "fallbacks", "context_window_fallbacks", "context_window_fallback_dict",
  "content_policy_fallbacks", "model_list", "api_base", "base_url", "api_key", "api_version", "custom_llm_provider",
  "extra_body", "extra_headers", "headers", "user_config", "router_settings_override", "mock_response",
  "web_search_options", "mcp_servers", "container", "audio",
];

const tiers = { service_tier: ["auto", "default", "standard_only"], speed: ["standard"], inference_geo: ["global"] };

function checkCommon(o: Members): void {
  for (const key of elsewhere) if (has(o, key)) throw unsupported(`${key} is not supported`);
  if (read(o, "background", "boolean")) throw unsupported("background: true is not supported");
  for (const [key, allowed] of Object.entries(tiers)) {
    const value = read(o, key, "string");
    if (value !== null && !allowed.includes(value)) {
      throw unsupported(`${key} ${value.slice(0, 64)} is not supported, only ${allowed.join(" and ")}`);
    }
  }
}

// checkTools refuses tools that the upstream itself runs and charges for. It encodes the tools again.
function checkTools(o: Members, dialect: Dialect): void {
  const tools = itemsOf(o, "tools")?.map((text, i) => {
    const tool = object(() => membersOf(text), `tool ${i + 1}`);
    const kind = read(tool, "type", "string") ?? "";
    if (!toolAllowed(kind, dialect)) throw unsupported(`tools of type ${kind.slice(0, 64)} are not supported`);
    return encode(tool);
  });
  if (tools !== undefined) o.set("tools", `[${tools.join(",")}]`);
}

// ofAnthropic reports whether requests have the form of Anthropic's messages.
const ofAnthropic = (dialect: Dialect) => dialect === "messages" || dialect === "counting";

function toolAllowed(kind: string, dialect: Dialect): boolean {
  if (!ofAnthropic(dialect)) return kind === "function" || kind === "custom";
  return kind === "" || kind === "custom" || ["bash_", "text_editor_", "computer_", "memory_"].some((p) => kind.startsWith(p));
}

function checkApi(o: Members, api: Api, dialect: Dialect): void {
  itemsOf(o, "modalities"); // before they are decoded, because of its limit
  if (read(o, "modalities", "strings")?.some((m) => m !== "text")) {
    throw unsupported("modalities other than text are not supported");
  }
  if (api === "openrouter" && has(o, "route")) throw unsupported("route is not supported");
  if (dialect === "responses" && has(o, "prompt")) {
    throw unsupported("prompt is not supported, because a stored prompt may bring tools");
  }
  if (ofAnthropic(dialect) && o.get("context_management")?.includes("compact")) {
    throw unsupported("compaction by the upstream is not supported");
  }
}

// setStream makes the upstream report the usage at the end of a stream.
function setStream(o: Members, api: Api, dialect: Dialect): { stream: boolean; hide: boolean } {
  const stream = read(o, "stream", "boolean") ?? false;
  if (api === "openrouter" && dialect === "chat") o.set("usage", `{"include":true}`);
  if (dialect !== "chat") return { stream, hide: false };
  let [options, asked]: [Members, boolean] = [new Map(), false];
  if (has(o, "stream_options")) {
    options = object(() => membersOf(o.get("stream_options") ?? ""), "stream_options");
    asked = read(options, "include_usage", "boolean") ?? false;
    o.set("stream_options", encode(options));
  }
  if (!stream || asked) return { stream, hide: false };
  options.set("include_usage", "true");
  o.set("stream_options", encode(options));
  return { stream, hide: api === "openai" };
}

// maxChoices keeps the reservation of one call in proportion to its model's max_output_tokens.
const maxChoices = 16;

// besides and besidesTools are tokens that an upstream adds to a request: for the format of messages, and for a prompt
// that describes the use of tools. Anthropic's prompt is the longest, with less than 1,500 tokens (read 2026-11).
const besides = 64;
const besidesTools = 2048;

// bound encodes the request, and returns the maximum that it can use and cost.
function bound(o: Members, m: Model, dialect: Dialect): { body: Uint8Array; most: Tokens; cost: number } {
  if (dialect === "counting") return { body: new TextEncoder().encode(encode(o)), most: noTokens, cost: 0 };
  const output = outputBound(o, m, dialect);
  const { refers, audio } = contents(o, dialect);
  if (audio) throw unsupported("audio is not supported");
  const body = new TextEncoder().encode(encode(o));
  let input = body.length + besides; // a token has at least one byte
  if (has(o, "tools")) input += besidesTools;
  if (refers) input = m.max_input_tokens;
  const most = { ...mostInput(m, Math.min(input, m.max_input_tokens)), output };
  const cost = costOf(m, most);
  if (!Number.isSafeInteger(cost) || !Number.isSafeInteger(totalOf(most))) {
    throw refuse(400, "invalid", "the call asks for more than can be counted: set max_tokens or a smaller n");
  }
  return { body, most, cost };
}

const outputNames: Record<Dialect, string[]> = {
  chat: ["max_completion_tokens", "max_tokens"],
  responses: ["max_output_tokens"],
  messages: ["max_tokens"],
  counting: [],
  embeddings: [],
};

function outputBound(o: Members, m: Model, dialect: Dialect): number {
  if (dialect === "embeddings") return 0;
  let most = 0;
  for (const name of outputNames[dialect]) {
    const n = read(o, name, "integer");
    if (n === null) continue;
    if (n < 1 || n > m.max_output_tokens) {
      const message = `${name} must be between 1 and ${m.max_output_tokens}, which is max_output_tokens of the model`;
      throw refuse(400, "invalid", `${message} in the environment's route, not ${n}`);
    }
    most = Math.max(most, n);
  }
  const choices = read(o, "n", "integer") ?? 1;
  if (choices < 1 || choices > maxChoices) {
    throw refuse(400, "invalid", `n must be between 1 and ${maxChoices}, not ${choices}`);
  }
  return (most === 0 ? m.max_output_tokens : most) * choices;
}

// described are parameters that hold schemas and labels, but no content.
const described = ["tools", "tool_choice", "response_format", "text", "metadata", "output_config", "functions"];

// referring are names of members whose content is not in the request, or is not billed by its length.
const referring = [
  "image_url", "file_id", "file_url", "file_data", "file", "source", "video_url", "image", "video", "document", "audio",
];

// contents reports whether a request refers to content that its length does not bound, and whether it has audio.
function contents(o: Members, dialect: Dialect): { refers: boolean; audio: boolean } {
  let refers = has(o, "previous_response_id") || has(o, "conversation");
  let audio = false;
  for (const [name, value] of o) {
    if (described.includes(name)) continue;
    for (const [inner, key] of stringsIn(value)) {
      if (inner.length > 6 * 32) continue; // the longest name is far shorter; \u escapes have six bytes
      const word = unescape(inner).toLowerCase();
      if (word === "input_audio") audio = true;
      else if (key && (referring.includes(word) || (word === "id" && dialect === "responses"))) refers = true;
      else if (word === "item_reference") refers = true;
    }
  }
  return { refers, audio };
}
