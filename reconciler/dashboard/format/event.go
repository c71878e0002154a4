package format

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Pair is a name and a value.
type Pair struct{ Name, Value string }

// maxPairs limits the values of an event on a page.
const maxPairs = 12

// Data returns the data of an event as names and values, with nested names such as a.b.
func Data(data json.RawMessage) []Pair {
	if len(data) == 0 {
		return nil
	}
	var v any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if dec.Decode(&v) != nil {
		return []Pair{{"data", string(data)}}
	}
	pairs := flatten(nil, "", v)
	if len(pairs) > maxPairs {
		pairs = append(pairs[:maxPairs], Pair{"…", fmt.Sprintf("and %d more", len(pairs)-maxPairs)})
	}
	return pairs
}

// unshown are values of events that pages show elsewhere or that help no reader.
var unshown = map[string]bool{"agent_did": true, "at": true, "attempt": true, "ended": true, "of": true}

func flatten(pairs []Pair, name string, v any) []Pair {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range sortedKeys(v) {
			if unshown[key] {
				continue
			}
			inner := key
			if name != "" {
				inner = name + "." + key
			}
			pairs = flatten(pairs, inner, v[key])
		}
		return pairs
	case []any:
		texts := make([]string, len(v))
		for i, one := range v {
			texts[i] = fmt.Sprint(one)
		}
		return append(pairs, Pair{Words(name), strings.Join(texts, ", ")})
	case nil:
		return pairs
	case json.Number:
		return append(pairs, figure(name, v))
	case string:
		return append(pairs, Pair{Words(name), EventText(v)})
	default:
		return append(pairs, Pair{Words(name), fmt.Sprint(v)})
	}
}

// EventText formats a time, a duration or a cancellation of an event for people, and leaves other texts as they are.
func EventText(v string) string {
	if v == context.Canceled.Error() { // by the sandbox: the gateway waits for nothing else
		return "the sandbox closed the connection first"
	}
	if at, err := time.Parse(time.RFC3339Nano, v); err == nil {
		return Moment{At: at.UTC()}.Exact()
	}
	if d, err := time.ParseDuration(v); err == nil {
		return Span(d)
	}
	return v
}

// figure formats a number of an event by the unit at the end of its name.
func figure(name string, n json.Number) Pair {
	f, err := n.Float64()
	if err != nil {
		return Pair{Words(name), n.String()}
	}
	if plain, isBytes := strings.CutSuffix(name, "_bytes"); isBytes {
		return Pair{Words(plain), Bytes(int64(f))}
	}
	if plain, isMillis := strings.CutSuffix(name, "_ms"); isMillis {
		return Pair{Words(plain), Span(time.Duration(f) * time.Millisecond)}
	}
	if strings.ContainsAny(n.String(), ".eE") {
		return Pair{Words(name), strconv.FormatFloat(math.Round(f*1000)/1000, 'f', -1, 64)}
	}
	return Pair{Words(name), n.String()}
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
