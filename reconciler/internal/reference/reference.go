// Package reference turns the API's OpenAPI document into the content of a reference page: operations by tag with their
// parameters, bodies, responses and an example in curl, and the schemas that they name.
package reference

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Reference is the content of a page.
type Reference struct {
	Title, Version, Description string
	Credentials                 []Credential
	Tags                        []Tag
	Schemas                     []Schema
}

// Credential is a way to authenticate.
type Credential struct{ Name, Description string }

// Tag is a group of operations.
type Tag struct {
	Name       string
	Operations []Operation
}

// Operation is one request of the API.
type Operation struct {
	ID, Method, Path     string
	Summary, Description string
	// Needs lists the credentials, any one of which is enough: "token with the scope read". None means no credential.
	Needs      []string
	Parameters []Field
	Bodies     []Body
	Responses  []Response
	Curl       string
}

// Field is a parameter, or a property of a schema.
type Field struct {
	Name        string
	In          string // path, query or header; "" for a property
	Type        Type
	Required    bool
	Description string
	// Facts are bounds, values, examples and defaults.
	Facts []string
}

// Type is the type of a value: Before, which may be empty, and a link to the schema Ref unless that is "".
type Type struct{ Before, Ref string }

// Body is the body of a request or of a response.
type Body struct {
	MediaType string
	Type      Type
	// Fields are the properties of the schema of a request.
	Fields []Field
}

// Response is one response of an operation.
type Response struct {
	Status, Description string
	Headers             []Field
	Bodies              []Body
}

// Schema is a type that operations name.
type Schema struct {
	Name, Description string
	Fields            []Field
}

// Parse reads an OpenAPI document.
func Parse(text []byte) (r Reference, err error) {
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		return r, fmt.Errorf("reading the OpenAPI document: %w", err)
	}
	r.Title, r.Version, r.Description = d.Info.Title, d.Info.Version, d.Info.Description
	for _, name := range sorted(d.Components.SecuritySchemes) {
		r.Credentials = append(r.Credentials, Credential{name, d.Components.SecuritySchemes[name].Description})
	}
	tags := map[string][]Operation{}
	for _, path := range sorted(d.Paths) {
		for _, method := range sorted(d.Paths[path]) {
			op := d.Paths[path][method]
			tag := "other"
			if len(op.Tags) > 0 {
				tag = op.Tags[0]
			}
			tags[tag] = append(tags[tag], d.operation(strings.ToUpper(method), path, op))
		}
	}
	for _, name := range sorted(tags) {
		r.Tags = append(r.Tags, Tag{name, tags[name]})
	}
	for _, name := range sorted(d.Components.Schemas) {
		s := d.Components.Schemas[name]
		r.Schemas = append(r.Schemas, Schema{name, s.Description, s.fields()})
	}
	return r, nil
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func (d document) operation(method, path string, from operation) Operation {
	op := Operation{ID: from.ID, Method: method, Path: path, Summary: from.Summary, Description: from.Description}
	for _, either := range from.Security {
		for _, scheme := range sorted(either) {
			need := scheme
			if scopes := either[scheme]; len(scopes) > 0 {
				need += " with the scope " + strings.Join(scopes, ", ")
			}
			op.Needs = append(op.Needs, need)
		}
	}
	for _, p := range from.Parameters {
		f := p.Schema.field(p.Name, p.Required)
		f.In = p.In
		if p.Description != "" {
			f.Description = p.Description
		}
		op.Parameters = append(op.Parameters, f)
	}
	for _, media := range sorted(from.RequestBody.Content) {
		s := from.RequestBody.Content[media].Schema
		op.Bodies = append(op.Bodies, Body{media, s.typ(), d.resolve(s).fields()})
	}
	for _, status := range sorted(from.Responses) {
		has := from.Responses[status]
		response := Response{Status: status, Description: has.Description}
		if status == "default" {
			response.Status = "error"
		}
		for _, name := range sorted(has.Headers) {
			response.Headers = append(response.Headers, has.Headers[name].Schema.field(name, false))
		}
		for _, media := range sorted(has.Content) {
			response.Bodies = append(response.Bodies, Body{MediaType: media, Type: has.Content[media].Schema.typ()})
		}
		op.Responses = append(op.Responses, response)
	}
	op.Curl = d.curl(op, from)
	return op
}
