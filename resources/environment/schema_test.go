package environment_test

import (
	"reflect"
	"slices"
	"testing"

	fwresource "github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"

	"github.com/sandbox-lease/terraform-provider-sandbox/resources/environment"
)

// The model has a field for each attribute and block and no other, and each says what it is.
func TestSchemaIsTheModelAndDescribed(t *testing.T) {
	t.Parallel()
	var resp fwresource.SchemaResponse
	environment.NewResource().Schema(t.Context(), fwresource.SchemaRequest{}, &resp)
	if diags := resp.Schema.ValidateImplementation(t.Context()); diags.HasError() {
		t.Fatal(diags)
	}
	var names []string
	for name, a := range resp.Schema.Attributes {
		names = append(names, name)
		described(t, name, a)
	}
	for name, b := range resp.Schema.Blocks {
		names = append(names, name)
		if b.GetMarkdownDescription() == "" {
			t.Errorf("%s has no description", name)
		}
		switch b := b.(type) {
		case schema.SingleNestedBlock:
			for inner, a := range b.Attributes {
				described(t, name+"."+inner, a)
			}
		case schema.ListNestedBlock:
			for inner, a := range b.NestedObject.Attributes {
				described(t, name+"."+inner, a)
			}
		default:
			t.Errorf("%s is a %T, whose attributes are not looked at", name, b)
		}
	}
	var fields []string
	for i := range reflect.TypeFor[environment.Model]().NumField() {
		fields = append(fields, reflect.TypeFor[environment.Model]().Field(i).Tag.Get("tfsdk"))
	}
	slices.Sort(names)
	slices.Sort(fields)
	if !slices.Equal(names, fields) {
		t.Errorf("the schema has %q, the model %q", names, fields)
	}
}

func described(t *testing.T, name string, a schema.Attribute) {
	t.Helper()
	if a.GetMarkdownDescription() == "" {
		t.Errorf("%s has no description", name)
	}
	if nested, ok := a.(schema.MapNestedAttribute); ok {
		for inner, a := range nested.NestedObject.Attributes {
			described(t, name+"."+inner, a)
		}
	}
}
