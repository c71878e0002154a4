package llm

import (
	"runtime"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestACheckTakesNoMoreMemoryThanItsCopiesOfTheBody is not parallel, because it measures the memory of the program.
//
//nolint:paralleltest // as above
func TestACheckTakesNoMoreMemoryThanItsCopiesOfTheBody(t *testing.T) {
	const size = 4 << 20
	price := sandbox.USD
	r := Route{LLMRoute: sandbox.LLMRoute{API: sandbox.LLMOpenAI, Models: map[string]sandbox.LLMModel{"m": {
		CachedInput: &price, CacheWrite: &price, MaxInputTokens: 1000, MaxOutputTokens: 1000,
	}}}}
	full := func(piece string) string { return strings.Repeat(piece, size/len(piece)) }
	tool := `{"type":"function","function":{"description":"` + strings.Repeat("x", size/100) + `"}}`
	for name, body := range map[string]string{
		"tools of zeros":     `{"model":"m","tools":[` + full("0,") + `0]}`,
		"tools of objects":   `{"model":"m","tools":[` + full("{},") + `{}]}`,
		"large tools":        `{"model":"m","tools":[` + strings.Repeat(tool+",", 99) + tool + `]}`,
		"a tool of members":  `{"model":"m","tools":[{` + full(`"a":0,`) + `"b":0}]}`,
		"members":            `{"model":"m",` + full(`"a":0,`) + `"b":0}`,
		"modalities":         `{"model":"m","modalities":[` + full(`"",`) + `""]}`,
		"messages of zeros":  `{"model":"m","messages":[` + full("0,") + `0]}`,
		"stream options":     `{"model":"m","stream_options":{` + full(`"a":0,`) + `"b":0}}`,
		"a long model":       `{"model":"` + full("m") + `"}`,
		"a tool's long type": `{"model":"m","tools":[{"type":"` + full("m") + `"}]}`,
	} {
		text := []byte(body)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = parse(text, r, "main", endpoint{"/v1/chat/completions", chat}) // the memory of a refusal counts too
		runtime.ReadMemStats(&after)
		// One of the copies is the body itself.
		if took := after.TotalAlloc - before.TotalAlloc; took > (bodyCopies-1)*uint64(len(text))+(256<<10) {
			t.Errorf("%s: the check of %d bytes takes %d", name, len(text), took)
		}
	}
}
