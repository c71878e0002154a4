package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestAPickerReadsWhatADecoderReads compares them with random values in random pieces.
func TestAPickerReadsWhatADecoderReads(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		b, err := json.Marshal(randomObject(random, 0))
		if err != nil {
			t.Fatal(err)
		}
		if random.IntN(2) == 0 {
			var spaced bytes.Buffer
			if err := json.Indent(&spaced, b, " ", "\t"); err != nil {
				t.Fatal(err)
			}
			b = spaced.Bytes()
		}
		p := newPicker(wanted{"usage", "", 1 << 20}, wanted{"response", "usage", 1 << 20})
		for rest := b; len(rest) > 0; {
			n := 1 + random.IntN(len(rest))
			if p.whole() {
				t.Fatalf("%s is whole before its last %d bytes", b, len(rest))
			}
			p.write(rest[:n])
			rest = rest[n:]
		}
		var outer map[string]json.RawMessage
		if err := json.Unmarshal(b, &outer); err != nil {
			t.Fatal(err)
		}
		var inner map[string]json.RawMessage
		_ = json.Unmarshal(outer["response"], &inner) // it may not be an object
		for i, want := range []json.RawMessage{outer["usage"], inner["usage"]} {
			if string(want) == "null" {
				want = nil
			}
			if got := p.value(i); !bytes.Equal(got, want) {
				t.Fatalf("of %s, value %d is %s, want %s", b, i, got, want)
			}
		}
		if !p.whole() {
			t.Fatalf("%s is not whole", b)
		}
	}
}

// names are keys and texts that could confuse a picker.
var names = []string{"usage", "response", "a", `"`, `\`, `\"usage":`, "{", "}", ",", ":", "[]", "us\u0000age", "é"}

func randomObject(random *rand.Rand, depth int) map[string]any {
	o := map[string]any{}
	for range random.IntN(5) {
		o[names[random.IntN(len(names))]] = randomValue(random, depth+1)
	}
	return o
}

func randomValue(random *rand.Rand, depth int) any {
	kinds := 7
	if depth > 4 {
		kinds = 4
	}
	switch random.IntN(kinds) {
	case 0:
		return names[random.IntN(len(names))]
	case 1:
		return random.IntN(1000)
	case 2:
		return nil
	case 3:
		return fmt.Sprint(names[random.IntN(len(names))], names[random.IntN(len(names))])
	case 4:
		list := []any{}
		for range random.IntN(4) {
			list = append(list, randomValue(random, depth+1))
		}
		return list
	default:
		return randomObject(random, depth)
	}
}
