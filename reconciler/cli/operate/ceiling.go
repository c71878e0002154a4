package operate

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/strictjson"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const ceilingHelp = "`name=value` to allow for a token limited by --environment, such as network=full, " +
	"memory_mb=8192, runtimes=runsc or root (default: restricted network, default sizes, no root, profile, runtime or " +
	"writable mount; may be repeated)"

// parseCeiling parses name=value pairs. A name alone means true. runtimes may be repeated.
func parseCeiling(pairs []string) (c sandbox.Ceiling, err error) {
	values := map[string]any{}
	var runtimes []string
	for _, pair := range pairs {
		name, text, hasValue := strings.Cut(pair, "=")
		if name == "runtimes" {
			runtimes = append(runtimes, text)
			values[name] = runtimes
			continue
		}
		if _, twice := values[name]; twice {
			return c, exit.Usagef("--ceiling sets %s twice", name)
		}
		values[name] = ceilingValue(text, hasValue)
	}
	body, err := json.Marshal(values)
	if err != nil { // strings, numbers and booleans always marshal
		return c, err
	}
	if err := strictjson.Err(strictjson.Decode(body, &c)); err != nil {
		return c, exit.Usagef("--ceiling %s: %w", strings.Join(pairs, ","), err)
	}
	return c, nil
}

func ceilingValue(text string, hasValue bool) any {
	if !hasValue {
		return true
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if b, err := strconv.ParseBool(text); err == nil {
		return b
	}
	return text
}

// ceilingOf formats a ceiling as parseCeiling reads it, "default" for a token with the default ceiling.
func ceilingOf(t sandbox.Token) string {
	switch {
	case sandbox.Unlimited(t.Environments):
		return "none"
	case t.Ceiling.IsZero():
		return "default"
	}
	body, err := json.Marshal(t.Ceiling)
	values := map[string]any{}
	if err == nil {
		err = json.Unmarshal(body, &values)
	}
	if err != nil {
		return err.Error()
	}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch v := values[name].(type) {
		case bool:
			texts = append(texts, name)
		case []any:
			for _, one := range v {
				texts = append(texts, fmt.Sprintf("%s=%v", name, one))
			}
		default:
			texts = append(texts, fmt.Sprintf("%s=%v", name, v))
		}
	}
	return strings.Join(texts, ",")
}
