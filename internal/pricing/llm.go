package pricing

import "github.com/sandbox-lease/terraform-provider-sandbox/sandbox"

// million is what the prices of models are for, in tokens.
const million = 1_000_000

// Tokens returns the cost of a call's tokens at a model's list prices, rounded once, half up. The model's defaults must
// be filled in.
func Tokens(m sandbox.LLMModel, t sandbox.LLMTokens) sandbox.NanoUSD {
	return round(per(sum(
		product(t.Input, int64(m.Input)),
		product(t.CachedInput, int64(*m.CachedInput)),
		product(t.CacheWrite, int64(*m.CacheWrite)),
		product(t.Output, int64(m.Output)),
	), million))
}

// MostInput returns input tokens, at the price class that costs most. It prices a call before its upstream says which
// of its input is cached.
func MostInput(m sandbox.LLMModel, tokens int64) sandbox.LLMTokens {
	switch dearest := max(m.Input, *m.CachedInput, *m.CacheWrite); dearest {
	case m.Input:
		return sandbox.LLMTokens{Input: tokens}
	case *m.CacheWrite:
		return sandbox.LLMTokens{CacheWrite: tokens}
	default:
		return sandbox.LLMTokens{CachedInput: tokens}
	}
}
