// Prices of tokens: internal/pricing/tokens.go in TypeScript. Money is in billionths of a US dollar.

import type { Model } from "./settings";

// Tokens are what an upstream counted for a call (sandbox.LLMTokens).
export interface Tokens {
  input: number;
  cached_input: number;
  cache_write: number;
  output: number;
}

export const noTokens: Tokens = { input: 0, cached_input: 0, cache_write: 0, output: 0 };

export function totalOf(t: Tokens): number {
  return t.input + t.cached_input + t.cache_write + t.output;
}

// costOf returns the cost of tokens, rounded once, half up.
export function costOf(m: Model, t: Tokens): number {
  const product = (tokens: number, price: number) => BigInt(tokens) * BigInt(price);
  const sum =
    product(t.input, m.input) +
    product(t.cached_input, m.cached_input) +
    product(t.cache_write, m.cache_write) +
    product(t.output, m.output);
  return Number((sum + 500_000n) / 1_000_000n);
}

// mostInput returns input tokens in the most expensive price class.
export function mostInput(m: Model, tokens: number): Tokens {
  const dearest = Math.max(m.input, m.cached_input, m.cache_write);
  if (dearest === m.input) return { ...noTokens, input: tokens };
  return dearest === m.cache_write ? { ...noTokens, cache_write: tokens } : { ...noTokens, cached_input: tokens };
}
