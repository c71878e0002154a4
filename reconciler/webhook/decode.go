package webhook

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// MaxBody is the largest message accepted, in bytes.
const MaxBody = 64 << 10

// Decode reads the body of a message and validates it. It is strict, because what a lenient reader
// skips may be what the sender meant: unknown and repeated fields, null, names in other case,
// invalid UTF-8 and anything after the object are refused. Errors: Invalid, naming each field.
func Decode(body []byte) (sandbox.Condition, error) {
	var (
		c    sandbox.Condition
		data json.RawMessage
	)
	if !utf8.Valid(body) {
		return c, sandbox.Errorf(sandbox.Invalid, "the condition is not valid UTF-8")
	}
	fields, err := object(body, "", map[string]any{"type": &c.Type, "timestamp": &c.Timestamp, "data": &data})
	if err != nil {
		return sandbox.Condition{}, err
	}
	if data != nil {
		more, err := object(data, "data.", map[string]any{
			"environment_id": &c.Data.EnvironmentID,
			"agent_did":      &c.Data.AgentDID,
			"generation":     &c.Data.Generation,
			"reason":         &c.Data.Reason,
		})
		if err != nil {
			return sandbox.Condition{}, err
		}
		fields = append(fields, more...)
	}
	if err := sandbox.InvalidFields("condition", fields); err != nil {
		return sandbox.Condition{}, err
	}
	if err := c.Validate(); err != nil {
		return sandbox.Condition{}, err
	}
	return c, nil
}

// object reads one JSON object into targets, by name, and returns what is wrong with its fields.
func object(raw []byte, prefix string, targets map[string]any) ([]sandbox.Field, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if start, err := dec.Token(); err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "the condition is not JSON: %w", err)
	} else if start != json.Delim('{') {
		name := strings.TrimSuffix(prefix, ".")
		return []sandbox.Field{{Name: cmp.Or(name, "body"), Problem: "must be a JSON object"}}, nil
	}
	var fields []sandbox.Field
	seen := make(map[string]bool, len(targets))
	for dec.More() {
		var value json.RawMessage
		key, err := dec.Token()
		if err == nil {
			err = dec.Decode(&value)
		}
		if err != nil {
			return nil, sandbox.Errorf(sandbox.Invalid, "the condition is not JSON: %w", err)
		}
		name, _ := key.(string) // inside an object every key is a string
		if problem := set(targets[name], value, seen[name]); problem != "" {
			fields = append(fields, sandbox.Field{Name: prefix + name, Problem: problem})
		}
		seen[name] = true
	}
	if _, err := dec.Token(); err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "the condition is not JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, sandbox.Errorf(sandbox.Invalid, "the condition is followed by other data")
	}
	return fields, nil
}

// set stores a field's value and returns what is wrong with it.
func set(target any, value json.RawMessage, repeated bool) (problem string) {
	switch {
	case target == nil:
		return "is not a field of a condition"
	case repeated:
		return "stands twice"
	case string(value) == "null":
		return "must not be null"
	}
	if err := json.Unmarshal(value, target); err == nil {
		return ""
	}
	switch target.(type) {
	case *time.Time:
		return "must be a time in RFC 3339, such as \"2026-08-01T12:00:00Z\""
	case *int64:
		return "must be a whole number"
	default:
		return "must be a string"
	}
}
