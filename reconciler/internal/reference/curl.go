package reference

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// maxDepth limits the example of a recursive schema.
const maxDepth = 4

var inPath = regexp.MustCompile(`\{[^}]+\}`)

// curl returns an example of a request, with the required parameters and fields.
func (d document) curl(op Operation, from operation) string {
	path := inPath.ReplaceAllStringFunc(op.Path, func(p string) string { return strings.ToUpper(strings.Trim(p, "{}")) })
	var (
		query  []string
		header []string
	)
	for i, p := range op.Parameters {
		switch s := from.Parameters[i].Schema; {
		case !p.Required:
		case p.In == "query":
			query = append(query, p.Name+"="+strings.Trim(fmt.Sprint(d.example(s, p.Name, 0)), `"`))
		case p.In == "header":
			header = append(header, fmt.Sprintf("-H '%s: %v'", p.Name, d.example(s, p.Name, 0)))
		}
	}
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	lines := []string{`curl "$RECONCILER` + path + `"`}
	if op.Method != "GET" {
		lines[0] = `curl -X ` + op.Method + ` "$RECONCILER` + path + `"`
	}
	if len(op.Needs) > 0 {
		lines = append(lines, `-H "Authorization: Bearer $TOKEN"`)
	}
	lines = append(lines, header...)
	if len(op.Bodies) > 0 { // JSON comes first
		media := op.Bodies[0].MediaType
		lines = append(lines, "-H 'Content-Type: "+media+"'")
		if media == "application/json" {
			var text bytes.Buffer
			enc := json.NewEncoder(&text)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(d.example(from.RequestBody.Content[media].Schema, "", 0)); err != nil { // of JSON
				panic(err)
			}
			lines = append(lines, "-d '"+strings.ReplaceAll(strings.TrimSpace(text.String()), "'", `'\''`)+"'")
		} else {
			lines = append(lines, "--data-binary @FILE")
		}
	}
	return strings.Join(lines, " \\\n  ")
}

// example returns a value of a schema with its required fields.
func (d document) example(s schema, name string, depth int) any {
	s = d.resolve(s)
	switch {
	case depth > maxDepth:
		return nil
	case len(s.Examples) > 0:
		return s.Examples[0]
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.Default != nil:
		return s.Default
	case s.Items != nil:
		return []any{d.example(*s.Items, name, depth+1)}
	case s.Properties != nil:
		object := map[string]any{}
		for name, field := range s.Properties {
			// No command is required, because a shell line can take its place.
			if slices.Contains(s.Required, name) || name == "command" {
				object[name] = d.example(field, name, depth+1)
			}
		}
		return object
	}
	switch s.Type {
	case "boolean":
		return true
	case "integer", "number":
		if s.Minimum != nil {
			return s.Minimum
		}
		return 1
	case "object":
		return map[string]any{}
	}
	if s.Format == "date-time" {
		return "2026-01-01T00:00:00Z"
	}
	return strings.ToUpper(name)
}
