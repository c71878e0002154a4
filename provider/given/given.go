// Package given refuses configured values without a meaning: null elements of collections, and empty texts. Only an
// omitted value takes its default, never a configured one.
package given

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
)

var (
	_ validator.List   = NoNulls{}
	_ validator.Map    = NoNulls{}
	_ validator.Set    = NoNulls{}
	_ validator.String = Text{}
)

// NoNulls refuses null elements. It cannot drop them: Terraform requires the state to equal the configuration, so the
// state would show an element that no sandbox has.
type NoNulls struct{}

// Description implements validator.Describer.
func (NoNulls) Description(context.Context) string { return "must not have null elements" }

// MarkdownDescription implements validator.Describer.
func (v NoNulls) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateMap names every key whose value is null.
func (NoNulls) ValidateMap(_ context.Context, req validator.MapRequest, resp *validator.MapResponse) {
	elements := req.ConfigValue.Elements()
	for _, key := range slices.Sorted(maps.Keys(elements)) {
		if elements[key].IsNull() {
			refuse(&resp.Diagnostics, req.Path.AtMapKey(key), "{ for k, v in VALUES : k => v if v != null }")
		}
	}
}

// ValidateList names every index whose value is null.
func (NoNulls) ValidateList(_ context.Context, req validator.ListRequest, resp *validator.ListResponse) {
	for i, element := range req.ConfigValue.Elements() {
		if element.IsNull() {
			refuse(&resp.Diagnostics, req.Path.AtListIndex(i), "[for v in VALUES : v if v != null]")
		}
	}
}

// ValidateSet refuses a set with null.
func (NoNulls) ValidateSet(_ context.Context, req validator.SetRequest, resp *validator.SetResponse) {
	for _, element := range req.ConfigValue.Elements() {
		if element.IsNull() {
			resp.Diagnostics.AddAttributeError(req.Path, "Null Element", fmt.Sprintf(
				"%s must not have null as an element. Leave it out, for example with [for v in VALUES : v if v != null].",
				req.Path))
			return
		}
	}
}

func refuse(diags *diag.Diagnostics, at path.Path, remedy string) {
	diags.AddAttributeError(at, "Null Element",
		fmt.Sprintf("%s must not be null. Leave the element out, for example with %s.", at, remedy))
}

// Text refuses an empty text.
type Text struct{}

// Description implements validator.Describer.
func (Text) Description(context.Context) string { return "must not be empty" }

// MarkdownDescription implements validator.Describer.
func (v Text) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateString accepts every text but "".
func (Text) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() || req.ConfigValue.ValueString() != "" {
		return
	}
	resp.Diagnostics.AddAttributeError(req.Path, "Empty Text",
		fmt.Sprintf("%s must not be empty. Leave it out, or set it to null, for its default.", req.Path))
}
