// Package collection converts lists, sets and maps between Terraform and Go.
package collection

import (
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// Elements returns the elements of a list, or none while the list is unknown. It skips null elements, which the schema
// refuses.
func Elements[T any](ctx context.Context, list types.List, diags *diag.Diagnostics) []T {
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

// List returns a list of values. Without values it is null.
func List[T any](ctx context.Context, of schema.ListNestedAttribute, values []T,
	diags *diag.Diagnostics) types.List {
	element := of.NestedObject.Type()
	if len(values) == 0 {
		return types.ListNull(element)
	}
	list, d := types.ListValueFrom(ctx, element, values)
	diags.Append(d...)
	return list
}

// Map returns a map of values. Without values it is null.
func Map[T any](ctx context.Context, of schema.MapNestedAttribute, values map[string]T,
	diags *diag.Diagnostics) types.Map {
	element := of.NestedObject.Type()
	if len(values) == 0 {
		return types.MapNull(element)
	}
	all, d := types.MapValueFrom(ctx, element, values)
	diags.Append(d...)
	return all
}

// Objects returns the known objects of a map by name.
func Objects[T any](ctx context.Context, of types.Map, diags *diag.Diagnostics) map[string]T {
	objects := map[string]T{}
	for name, v := range of.Elements() {
		if !v.IsNull() && !v.IsUnknown() {
			var object T
			diags.Append(tfsdk.ValueAs(ctx, v, &object)...)
			objects[name] = object
		}
	}
	return objects
}

// Set returns a set of texts.
func Set(ctx context.Context, texts []string, diags *diag.Diagnostics) types.Set {
	s, d := types.SetValueFrom(ctx, types.StringType, texts)
	diags.Append(d...)
	return s
}

// Strings returns a set's elements. Some may be unknown.
func Strings(ctx context.Context, s types.Set, diags *diag.Diagnostics) []types.String {
	var list []types.String
	if !s.IsNull() && !s.IsUnknown() {
		diags.Append(s.ElementsAs(ctx, &list, false)...)
	}
	return list
}

// Known returns the known values, sorted.
func Known(list []types.String) []string {
	var values []string
	for _, v := range list {
		if !v.IsUnknown() {
			values = append(values, v.ValueString())
		}
	}
	slices.Sort(values)
	return values
}

// SetLike returns a set of texts. If it is empty, it is null or empty as prior is.
func SetLike(ctx context.Context, values []string, prior types.Set, diags *diag.Diagnostics) types.Set {
	if slices.Equal(Known(Strings(ctx, prior, diags)), slices.Sorted(slices.Values(values))) {
		return prior
	}
	if len(values) == 0 {
		return types.SetNull(types.StringType)
	}
	return Set(ctx, values, diags)
}

// TextMap returns a map's elements. Unknown elements are "".
func TextMap(ctx context.Context, m types.Map, diags *diag.Diagnostics) map[string]string {
	var values map[string]types.String
	if !m.IsNull() && !m.IsUnknown() {
		diags.Append(m.ElementsAs(ctx, &values, false)...)
	}
	if len(values) == 0 {
		return nil
	}
	out := make(map[string]string, len(values))
	for k, v := range values {
		out[k] = v.ValueString()
	}
	return out
}

// TextMapLike returns a map of texts. If it is empty, it is null or empty as prior is.
func TextMapLike(ctx context.Context, values map[string]string, prior types.Map, diags *diag.Diagnostics) types.Map {
	if len(values) == 0 && len(prior.Elements()) == 0 && !prior.IsUnknown() && !prior.IsNull() {
		return prior
	}
	if len(values) == 0 {
		return types.MapNull(types.StringType)
	}
	m, d := types.MapValueFrom(ctx, types.StringType, values)
	diags.Append(d...)
	return m
}

// Texts returns a list of words. Without words it is null.
func Texts(ctx context.Context, words []string, diags *diag.Diagnostics) types.List {
	if len(words) == 0 {
		return types.ListNull(types.StringType)
	}
	list, d := types.ListValueFrom(ctx, types.StringType, words)
	diags.Append(d...)
	return list
}

// Types returns the types of an object's attributes.
func Types(attributes map[string]schema.Attribute) map[string]attr.Type {
	all := make(map[string]attr.Type, len(attributes))
	for name, a := range attributes {
		all[name] = a.GetType()
	}
	return all
}
