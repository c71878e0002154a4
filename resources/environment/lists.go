package environment

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// expandList returns the elements of a list, none while the list is unknown. Null elements, which the schema refuses,
// are left out.
func expandList[T any](ctx context.Context, list types.List, diags *diag.Diagnostics) []T {
	var elements []T
	for _, v := range list.Elements() {
		if !v.IsNull() {
			var element T
			diags.Append(tfsdk.ValueAs(ctx, v, &element)...)
			elements = append(elements, element)
		}
	}
	return elements
}

// listOf returns the list of elements; null is none.
func listOf[T any](ctx context.Context, of schema.ListNestedAttribute, values []T,
	diags *diag.Diagnostics) types.List {
	element := of.NestedObject.Type()
	if len(values) == 0 {
		return types.ListNull(element)
	}
	list, d := types.ListValueFrom(ctx, element, values)
	diags.Append(d...)
	return list
}

// mapOf returns the map of elements; null is none.
func mapOf[T any](ctx context.Context, of schema.MapNestedAttribute, values map[string]T,
	diags *diag.Diagnostics) types.Map {
	element := of.NestedObject.Type()
	if len(values) == 0 {
		return types.MapNull(element)
	}
	all, d := types.MapValueFrom(ctx, element, values)
	diags.Append(d...)
	return all
}

// orAssumed returns a string or, while it is unknown, one that is valid in its place.
func orAssumed(s types.String, valid string) string {
	if s.IsUnknown() {
		return valid
	}
	return s.ValueString()
}
