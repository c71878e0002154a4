package reference

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// document is the part of an OpenAPI document that the page shows.
type document struct {
	Info  struct{ Title, Version, Description string }
	Paths map[string]map[string]operation
	// Components hold the targets of $ref.
	Components struct {
		Schemas         map[string]schema
		SecuritySchemes map[string]struct{ Description string }
	}
}

type operation struct {
	ID                   string `json:"operationId"`
	Summary, Description string
	Tags                 []string
	Security             []map[string][]string
	Parameters           []struct {
		Name, In, Description string
		Required              bool
		Schema                schema
	}
	RequestBody content
	Responses   map[string]content
}

type content struct {
	Description string
	Headers     map[string]struct{ Schema schema }
	Content     map[string]struct{ Schema schema }
}

type schema struct {
	Ref                                string `json:"$ref"`
	Type, Format, Description, Pattern string
	ContentEncoding                    string
	Enum, Examples                     []any
	Default                            any
	Minimum, Maximum                   *json.Number
	MinLength, MaxLength               *json.Number
	MinItems, MaxItems                 *json.Number
	MinProperties, MaxProperties       *json.Number
	ReadOnly, WriteOnly, Deprecated    bool
	Items                              *schema
	Properties                         map[string]schema
	Required                           []string
	AdditionalProperties               json.RawMessage
}

const refPrefix = "#/components/schemas/"

// resolve returns the schema that a $ref names.
func (d document) resolve(s schema) schema {
	if s.Ref != "" {
		return d.Components.Schemas[strings.TrimPrefix(s.Ref, refPrefix)]
	}
	return s
}

// fields returns the properties: the required ones first, and then by name.
func (s schema) fields() (all []Field) {
	for _, name := range sorted(s.Properties) {
		all = append(all, s.Properties[name].field(name, slices.Contains(s.Required, name)))
	}
	slices.SortStableFunc(all, func(a, b Field) int {
		switch {
		case a.Required == b.Required:
			return 0
		case a.Required:
			return -1
		default:
			return 1
		}
	})
	return all
}

func (s schema) field(name string, required bool) Field {
	return Field{Name: name, Type: s.typ(), Required: required, Description: s.Description, Facts: s.facts()}
}

// values returns the schema of the values of a map, nil if the schema is not a map.
func (s schema) values() *schema {
	var values schema
	if len(s.AdditionalProperties) == 0 || s.AdditionalProperties[0] != '{' ||
		json.Unmarshal(s.AdditionalProperties, &values) != nil {
		return nil
	}
	return &values
}

func (s schema) typ() Type {
	switch values := s.values(); {
	case s.Ref != "":
		return Type{Ref: strings.TrimPrefix(s.Ref, refPrefix)}
	case s.Items != nil:
		t := s.Items.typ()
		t.Before = "list of " + t.Before
		return t
	case values != nil:
		t := values.typ()
		t.Before = "map of " + t.Before
		return t
	case s.Type == "":
		return Type{Before: "any JSON"}
	}
	name := s.Type
	switch {
	case s.ContentEncoding != "":
		name += " in " + s.ContentEncoding
	case s.Format != "" && s.Format != "int64" && s.Format != "double":
		name = s.Format
	}
	return Type{Before: name}
}

// facts returns the limits of the schema's values, or of the elements of a list.
func (s schema) facts() (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	bounds := func(what string, least, most *json.Number) {
		switch {
		case least != nil && most != nil:
			add("%s%s to %s", what, *least, *most)
		case least != nil:
			add("%sat least %s", what, *least)
		case most != nil:
			add("%sat most %s", what, *most)
		}
	}
	bounds("", s.Minimum, s.Maximum)
	bounds("characters: ", s.MinLength, s.MaxLength)
	bounds("elements: ", s.MinItems, s.MaxItems)
	bounds("entries: ", s.MinProperties, s.MaxProperties)
	if len(s.Enum) > 0 {
		add("one of `%s`", strings.Join(texts(s.Enum), "`, `"))
	}
	if s.Pattern != "" {
		add("pattern `%s`", s.Pattern)
	}
	if s.Default != nil {
		add("default `%s`", texts([]any{s.Default})[0])
	}
	if len(s.Examples) > 0 {
		add("such as `%s`", strings.Join(texts(s.Examples), "`, `"))
	}
	for name, is := range map[string]bool{"read only": s.ReadOnly, "write only": s.WriteOnly, "deprecated": s.Deprecated} {
		if is {
			add("%s", name)
		}
	}
	if s.Items != nil {
		all = append(all, s.Items.facts()...)
	} else if values := s.values(); values != nil {
		all = append(all, values.facts()...)
	}
	return all
}

// texts formats JSON values, and strings without quotes.
func texts(values []any) (all []string) {
	for _, v := range values {
		if text, ok := v.(string); ok {
			all = append(all, text)
			continue
		}
		text, err := json.Marshal(v)
		if err != nil { // v comes from JSON
			panic(err)
		}
		all = append(all, string(text))
	}
	return all
}
