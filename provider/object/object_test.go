package object_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/duration"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/object"
)

type name struct {
	Name types.String `tfsdk:"name"`
}

type thing struct {
	name
	TTL   duration.Value `tfsdk:"ttl"`
	Tags  types.Set      `tfsdk:"tags"`
	Cores types.Float64  `tfsdk:"cores"`
}

var kind = schema.Schema{Attributes: map[string]schema.Attribute{
	"name":  schema.StringAttribute{Required: true},
	"ttl":   schema.StringAttribute{Optional: true, CustomType: duration.Type{}},
	"tags":  schema.SetAttribute{Optional: true, ElementType: types.StringType},
	"cores": schema.Float64Attribute{Computed: true},
}}

// state returns a state; nil is a null attribute.
func state(t *testing.T, name, ttl, tags, cores any) tfsdk.State {
	t.Helper()
	of := kind.Type().TerraformType(t.Context())
	set := tftypes.Set{ElementType: tftypes.String}
	return tfsdk.State{Schema: kind, Raw: tftypes.NewValue(of, map[string]tftypes.Value{
		"name":  tftypes.NewValue(tftypes.String, name),
		"ttl":   tftypes.NewValue(tftypes.String, ttl),
		"tags":  tftypes.NewValue(set, tags),
		"cores": tftypes.NewValue(tftypes.Number, cores),
	})}
}

func TestReadsAndWritesAsTheFrameworkDoes(t *testing.T) {
	t.Parallel()
	red := []tftypes.Value{tftypes.NewValue(tftypes.String, "red"), tftypes.NewValue(tftypes.String, tftypes.UnknownValue)}
	for name, s := range map[string]tfsdk.State{
		"known":   state(t, "a", "24h0m0s", red, 0.5),
		"null":    state(t, nil, nil, nil, nil),
		"unknown": state(t, tftypes.UnknownValue, tftypes.UnknownValue, tftypes.UnknownValue, tftypes.UnknownValue),
	} {
		var got, want thing
		if diags := append(object.Get(t.Context(), s, &got), s.Get(t.Context(), &want)...); len(diags) > 0 {
			t.Fatalf("%s: %v", name, diags)
		}
		if !got.Name.Equal(want.Name) || !got.TTL.Equal(want.TTL) || !got.Tags.Equal(want.Tags) ||
			!got.Cores.Equal(want.Cores) {
			t.Errorf("%s: read %+v, want %+v", name, got, want)
		}
		written := state(t, "before", "1h", nil, 1)
		if diags := object.Set(t.Context(), &written, got); len(diags) > 0 || !written.Raw.Equal(s.Raw) {
			t.Errorf("%s: wrote %s, want %s (%v)", name, written.Raw, s.Raw, diags)
		}
	}
}

func TestReadsPartOfAnObject(t *testing.T) {
	t.Parallel()
	var got name
	if diags := object.Get(t.Context(), state(t, "a", nil, nil, 1), &got); len(diags) > 0 || got.Name.ValueString() != "a" {
		t.Errorf("read %+v (%v)", got, diags)
	}
}

func TestRefusesStructsOfAnotherObject(t *testing.T) {
	t.Parallel()
	s := state(t, "a", "1h", nil, 1)
	var missing struct {
		Color types.String `tfsdk:"color"`
	}
	var other struct {
		TTL types.String `tfsdk:"ttl"`
	}
	for what, target := range map[string]any{"color": &missing, "ttl": &other} {
		if diags := object.Get(t.Context(), s, target); !diags.HasError() || !strings.Contains(diags[0].Detail(), what) {
			t.Errorf("reading %s returns %v", what, diags)
		}
	}
	if diags := object.Set(t.Context(), &s, name{types.StringValue("b")}); !diags.HasError() {
		t.Error("a struct without all attributes was written")
	}
	if diags := object.Set(t.Context(), &s, struct {
		Name string `tfsdk:"name"`
	}{"b"}); !diags.HasError() {
		t.Error("a field that is no value of an attribute was written")
	}
	s.RemoveResource(t.Context())
	if diags := object.Get(t.Context(), s, &name{}); !diags.HasError() {
		t.Error("an object that is null was read")
	}
}
