// Package generate writes the types and the plain operations of the libraries in Python and TypeScript from the API's
// OpenAPI document, so that they cannot drift from it.
package generate

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Document is the part of an OpenAPI document that the libraries need.
type Document struct {
	Paths      map[string]map[string]Operation `json:"paths"`
	Components struct {
		Schemas map[string]Schema `json:"schemas"`
	} `json:"components"`
}

// Schema is a type of the document.
type Schema struct {
	Ref         string            `json:"$ref"`
	Type        string            `json:"type"`
	Description string            `json:"description"`
	Enum        []string          `json:"enum"`
	Items       *Schema           `json:"items"`
	Properties  map[string]Schema `json:"properties"`
	Required    []string          `json:"required"`
	Additional  json.RawMessage   `json:"additionalProperties"`
}

// Operation is one request of the API.
type Operation struct {
	ID         string      `json:"operationId"`
	Summary    string      `json:"summary"`
	Parameters []Parameter `json:"parameters"`
	Body       *content    `json:"requestBody"`
	Responses  map[string]content
	method     string
	path       string
}

// Parameter is a parameter of an operation.
type Parameter struct {
	Name        string `json:"name"`
	In          string `json:"in"`
	Description string `json:"description"`
	Required    bool   `json:"required"`
	Schema      Schema `json:"schema"`
}

type content struct {
	Content map[string]struct {
		Schema Schema `json:"schema"`
	} `json:"content"`
}

// Parse reads a document.
func Parse(document []byte) (d Document, err error) {
	return d, json.Unmarshal(document, &d)
}

// Operations returns the operations of the document in the order of their ids.
func (d Document) Operations() []Operation {
	var all []Operation
	for path, item := range d.Paths {
		for method, op := range item {
			op.method, op.path = strings.ToUpper(method), path
			all = append(all, op)
		}
	}
	slices.SortFunc(all, func(a, b Operation) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// generated returns the operations that the libraries have as generated methods. Each needs a call in Calls.
func (d Document) generated() (ops []Operation, err error) {
	for _, op := range d.Operations() {
		if ByHand[op.ID] != "" {
			continue
		}
		if _, known := Calls[op.ID]; !known {
			return nil, fmt.Errorf("operation %s is neither in Calls nor in ByHand", op.ID)
		}
		ops = append(ops, op)
	}
	return ops, nil
}

func (d Document) schemas() []string { return slices.Sorted(maps.Keys(d.Components.Schemas)) }

// properties returns the names of a schema's properties, required ones first.
func (s Schema) properties() []string {
	names := slices.Sorted(maps.Keys(s.Properties))
	slices.SortStableFunc(names, func(a, b string) int {
		return order(slices.Contains(s.Required, b)) - order(slices.Contains(s.Required, a))
	})
	return names
}

func order(first bool) int {
	if first {
		return 1
	}
	return 0
}

// additional returns the type of the values of a map, nil if the schema is not a map.
func (s Schema) additional() *Schema {
	var of Schema
	if s.Type != "object" || json.Unmarshal(s.Additional, &of) != nil {
		return nil
	}
	return &of
}

// body and answer return the names of the schemas of the request and of the answer, "" for none.
func (op Operation) body() string {
	if op.Body == nil {
		return ""
	}
	return op.Body.schema()
}

func (op Operation) answer() string {
	for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
		if name := op.Responses[status].schema(); status[0] == '2' && name != "" {
			return name
		}
	}
	return ""
}

func (c content) schema() string { return reference(c.Content["application/json"].Schema.Ref) }

func reference(ref string) string { return strings.TrimPrefix(ref, "#/components/schemas/") }

func (op Operation) parameters(in string) (list []Parameter) {
	for _, p := range op.Parameters {
		if p.In == in {
			list = append(list, p)
		}
	}
	return list
}

// async reports whether the operation may answer before it is done.
func (op Operation) async() bool {
	return slices.ContainsFunc(op.parameters("header"), func(p Parameter) bool { return p.Name == "Prefer" })
}

// text returns a description on one line.
func text(description string) string { return strings.Join(strings.Fields(description), " ") }
