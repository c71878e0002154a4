// The LLM routes of an environment, with their keys, and what its calls may cost. The Go side is llmSettings in llm.go.
// Money is in billionths of a US dollar.

import { Failure } from "../errors";

export type Api = "openai" | "anthropic" | "openrouter";

// Model has prices for a million tokens, and bounds of a call (sandbox.LLMModel with its defaults).
export interface Model {
  input: number;
  cached_input: number;
  cache_write: number;
  output: number;
  max_input_tokens: number;
  max_output_tokens: number;
}

// Use is what calls used, or may use; a limit of 0 means no limit.
export interface Use {
  usd: number;
  requests: number;
  tokens: number;
}

export interface Route {
  api: Api;
  upstream: string;
  key: string;
  models: Record<string, Model>;
  lease_limits: Use;
  monthly_limits: Use;
}

export interface LLMSettings {
  account: string;
  routes: Record<string, Route>;
  // month is the month of recorded and cap ("2026-11", UTC).
  month: string;
  // recorded is what the ledger has recorded of the month's calls, by route.
  recorded: Record<string, Use>;
  // cap is what all calls of the month may cost together; null means no budget.
  cap: number | null;
}

// parseLLMSettings parses settings that the caller has validated. Its errors never contain a key.
export function parseLLMSettings(body: Uint8Array): { digest: string; settings: LLMSettings } {
  try {
    const { digest, settings } = JSON.parse(new TextDecoder().decode(body)) as { digest: string; settings: LLMSettings };
    const valid = ({ api, upstream, key, models }: Route) =>
      ["openai", "anthropic", "openrouter"].includes(api) && key !== "" && new URL(upstream).host !== "" && Object.values(models).every(isModel);
    if (/^\d{4}-\d{2}$/.test(settings.month) && typeof digest === "string" && Object.values(settings.routes).every(valid)) {
      return { digest, settings };
    }
  } catch {
    // the error below says what is wrong
  }
  throw new Failure("invalid", "the LLM routes must be JSON with a month, and routes that have an API, an upstream, a key and models");
}

function isModel(m: Model): boolean {
  const numbers = [m.input, m.cached_input, m.cache_write, m.output, m.max_input_tokens, m.max_output_tokens];
  return numbers.every((n) => Number.isSafeInteger(n) && n >= 0);
}
