package pricing_test

import (
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func usd(t *testing.T, text string) *sandbox.NanoUSD {
	t.Helper()
	var n sandbox.NanoUSD
	if err := n.UnmarshalText([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return &n
}

func TestTokensCostTheirListPrices(t *testing.T) {
	t.Parallel()
	model := sandbox.LLMModel{
		Input: *usd(t, "3"), CachedInput: usd(t, "0.3"), CacheWrite: usd(t, "3.75"), Output: *usd(t, "15"),
	}
	for _, c := range []struct {
		tokens sandbox.LLMTokens
		want   string
	}{
		{sandbox.LLMTokens{}, "0"},
		{sandbox.LLMTokens{Input: 1_000_000}, "3"},
		{sandbox.LLMTokens{CachedInput: 1_000_000}, "0.3"},
		{sandbox.LLMTokens{CacheWrite: 1_000_000}, "3.75"},
		{sandbox.LLMTokens{Output: 1_000_000}, "15"},
		{sandbox.LLMTokens{Input: 1200, CachedInput: 800, CacheWrite: 400, Output: 350}, "0.01059"},
	} {
		if got := pricing.Tokens(model, c.tokens); got != *usd(t, c.want) {
			t.Errorf("%+v cost %s, want %s", c.tokens, got, c.want)
		}
	}
	// 37.5 nano-dollars a token: the sum is rounded, not its parts.
	model.Input, model.CachedInput = *usd(t, "0.0375"), usd(t, "0.0375")
	if got := pricing.Tokens(model, sandbox.LLMTokens{Input: 1, CachedInput: 1}); got != 75 {
		t.Errorf("two tokens at 37.5 cost %d nano-dollars", got)
	}
	if got := pricing.Tokens(model, sandbox.LLMTokens{Input: 1}); got != 38 {
		t.Errorf("one token at 37.5 costs %d nano-dollars", got)
	}
}

func TestMostInputCostsAtLeastWhatTheSameInputCosts(t *testing.T) {
	t.Parallel()
	for _, prices := range [][3]string{{"3", "0.3", "6"}, {"3", "3", "3"}, {"1", "2", "1"}, {"0", "0", "0"}} {
		model := sandbox.LLMModel{
			Input: *usd(t, prices[0]), CachedInput: usd(t, prices[1]), CacheWrite: usd(t, prices[2]),
		}
		most := pricing.Tokens(model, pricing.MostInput(model, 1000))
		for _, tokens := range []sandbox.LLMTokens{{Input: 1000}, {CachedInput: 1000}, {CacheWrite: 1000}} {
			if got := pricing.Tokens(model, tokens); got > most {
				t.Errorf("at %v, %+v costs %s, more than the most, %s", prices, tokens, got, most)
			}
		}
	}
}
