package webhook

import (
	"bytes"
	"cmp"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// MaxBody is the maximum size of a message, in bytes.
const MaxBody = 64 << 10

// Decode decodes and validates the body of a message. It is strict, because a lenient decoder may skip what the sender
// meant. It rejects unknown and duplicate fields, null, names in another case, invalid UTF-8 and data after the object.
// Errors: Invalid, naming each field.
func Decode(body []byte) (sandbox.Condition, error) {
	var (
		c    sandbox.Condition
		data json.RawMessage
	)
	if !utf8.Valid(body) {
		return c, sandbox.Errorf(sandbox.Invalid, "the condition is not valid UTF-8")
	}
	if !json.Valid(body) {
		return c, notJSON(body)
	}
	fields := object(bytes.TrimLeft(body, space), "", func(name string) any {
		switch name {
		case "type":
			return &c.Type
		case "timestamp":
			return &c.Timestamp
		case "data":
			return &data
		}
		return nil
	})
	if data != nil {
		fields = append(fields, object(data, "data.", func(name string) any { return dataField(&c.Data, name) })...)
	}
	if err := sandbox.InvalidFields("condition", fields); err != nil {
		return sandbox.Condition{}, err
	}
	if err := c.Validate(); err != nil {
		return sandbox.Condition{}, err
	}
	return c, nil
}

// notJSON returns the error of a body that is not one JSON value.
func notJSON(body []byte) error {
	var value any
	err := json.NewDecoder(bytes.NewReader(body)).Decode(&value)
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "the condition is not JSON: %w", err)
	}
	return sandbox.Errorf(sandbox.Invalid, "the condition is followed by other data")
}

// dataField returns the target of a field of a condition's data, nil for an unknown field.
func dataField(d *sandbox.ConditionData, name string) any {
	switch name {
	case "environment_id":
		return &d.EnvironmentID
	case "agent_did":
		return &d.AgentDID
	case "generation":
		return &d.Generation
	case "reason":
		return &d.Reason
	}
	return nil
}

// object decodes one JSON object into targets by name, and returns the problems of its fields.
func object(raw []byte, prefix string, target func(name string) any) (fields []sandbox.Field) {
	if raw[0] != '{' {
		name := strings.TrimSuffix(prefix, ".")
		return []sandbox.Field{{Name: cmp.Or(name, "body"), Problem: "must be a JSON object"}}
	}
	var seen []string
	for key, value := range members(raw) {
		var name string
		_ = set(&name, key, false) // JSON keys are always strings
		if problem := set(target(name), value, slices.Contains(seen, name)); problem != "" {
			fields = append(fields, sandbox.Field{Name: prefix + name, Problem: problem})
		}
		seen = append(seen, name)
	}
	return fields
}

// set stores the value of a field, or returns its problem.
func set(target any, value json.RawMessage, repeated bool) (problem string) {
	switch {
	case target == nil:
		return "is not a field of a condition"
	case repeated:
		return "is a duplicate"
	case string(value) == "null":
		return "must not be null"
	}
	if text, isString := target.(*string); isString && value[0] == '"' && !bytes.ContainsRune(value, '\\') {
		*text = string(value[1 : len(value)-1]) // the common case, without reflection
		return ""
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

// space is the whitespace of JSON.
const space = " \t\r\n"

// members yields the raw keys and values of an object. The object is valid JSON, so finding the end of each value is
// enough. json.Decoder would validate again and take five times as long.
func members(object []byte) iter.Seq2[json.RawMessage, json.RawMessage] {
	return func(yield func(key, value json.RawMessage) bool) {
		for rest := bytes.TrimLeft(object[1:], space+","); rest[0] != '}'; rest = bytes.TrimLeft(rest, space+",") {
			var key, value []byte
			key, rest = cutValue(rest)
			value, rest = cutValue(bytes.TrimLeft(rest, space+":"))
			if !yield(key, value) {
				return
			}
		}
	}
}

// cutValue splits valid JSON after its first value.
func cutValue(text []byte) (value, rest []byte) {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		default:
			if depth > 0 || bytes.IndexByte([]byte(space+",:}]"), next(text, i)) < 0 {
				continue
			}
		}
		if depth == 0 {
			return text[:i+1], text[i+1:]
		}
	}
	return text, nil
}

// next returns the byte after index i, ',' at the end.
func next(text []byte, i int) byte {
	if i+1 < len(text) {
		return text[i+1]
	}
	return ','
}
