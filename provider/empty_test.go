package provider_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
)

// A list, set or map may be empty, unless its description says that it must not be.
func TestDescriptionsSayWhatMustNotBeEmpty(t *testing.T) {
	t.Parallel()
	server, schemas, dir := leasedInMemory(t)
	for kind, values := range map[string]sound{
		"sandbox_environment": soundEnvironment(dir), "sandbox_lease": soundLease(), "sandbox_container_image": soundImage(t),
	} {
		c := newCore(server, schemas, kind)
		base := values.required(c.fields, "")
		if kind == "sandbox_container_image" {
			base["source"] = map[string]any{"reference": values["source.reference"][0]}
		}
		values.eachEmpty(c.fields, "", func(a *tfprotov6.SchemaAttribute, at string, config map[string]any) {
			all := maps.Clone(base)
			maps.Copy(all, config)
			var r refusal
			err := c.validate(t.Context(), valueOf(c.block.ValueType(), all))
			if err != nil && !errors.As(err, &r) {
				t.Fatal(err)
			}
			refused := false
			for _, d := range r {
				refused = refused || d.Attribute != nil && strings.HasSuffix(d.Attribute.String(), `AttributeName("`+a.Name+`")`)
			}
			if said := strings.Contains(strings.ToLower(a.Description), "at least one"); refused != said {
				t.Errorf("%s.%s: an empty one is refused: %t; the description says so: %t: %s", kind, at, refused, said, err)
			}
		})
	}
}

// required returns a configuration of sound values with everything required.
func (s sound) required(attributes []*tfprotov6.SchemaAttribute, at string) map[string]any {
	values := map[string]any{}
	for _, a := range attributes {
		switch here := at + a.Name; {
		case !a.Required:
		case a.NestedType != nil:
			values[a.Name] = nested(a.NestedType, s.required(a.NestedType.Attributes, here+"."))
		case len(s[here]) > 0:
			values[a.Name] = s[here][0]
		}
	}
	return values
}

// eachEmpty calls see for every configurable list, set or map, at any depth, with a configuration in which it is empty.
func (s sound) eachEmpty(attributes []*tfprotov6.SchemaAttribute, at string,
	see func(a *tfprotov6.SchemaAttribute, at string, config map[string]any)) {
	for _, a := range attributes {
		here := at + a.Name
		if !a.Optional && !a.Required {
			continue
		}
		switch empty := odd(a, here, nil)[0].(type) {
		case []any, map[string]any:
			see(a, here, map[string]any{a.Name: empty})
		}
		if n := a.NestedType; n != nil {
			s.eachEmpty(n.Attributes, here+".", func(inner *tfprotov6.SchemaAttribute, at string, config map[string]any) {
				all := s.required(n.Attributes, here+".")
				maps.Copy(all, config)
				see(inner, at, map[string]any{a.Name: nested(n, all)})
			})
		}
	}
}
