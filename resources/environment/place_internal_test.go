package environment

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
)

// A diagnostic with a path that the schema lacks points at nothing.
func TestFieldsArePlacedWhereTheSchemaHasThem(t *testing.T) {
	t.Parallel()
	var schema resource.SchemaResponse
	NewResource().Schema(t.Context(), resource.SchemaRequest{}, &schema)
	for field, want := range map[string]path.Path{
		"labels":                            path.Root("labels"),
		"labels.bad key":                    path.Root("labels").AtMapKey("bad key"),
		"labels.a.b!":                       path.Root("labels").AtMapKey("a.b!"),
		"env.A.B":                           path.Root("env").AtMapKey("A.B"),
		"mounts[1].source":                  path.Root("mount").AtListIndex(1).AtName("source"),
		"processes[0].env.A.B":              path.Root("process").AtListIndex(0).AtName("env").AtMapKey("A.B"),
		"processes[0].endpoint.description": path.Root("process").AtListIndex(0).AtName("endpoint").AtName("description"),
	} {
		got, _, ok := place(field)
		if !ok || !got.Equal(want) {
			t.Errorf("%s is at %s, want %s", field, got, want)
		}
		if _, diags := schema.Schema.TypeAtPath(t.Context(), got); diags.HasError() {
			t.Errorf("%s is at %s: %v", field, got, diags)
		}
	}
}
