package environment

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// expandBlocks returns the blocks of a list, none while the list is unknown.
func expandBlocks[T any](ctx context.Context, list types.List, diags *diag.Diagnostics) []T {
	var blocks []T
	if !list.IsNull() && !list.IsUnknown() {
		diags.Append(list.ElementsAs(ctx, &blocks, false)...)
	}
	return blocks
}

// blocksOf returns the list of blocks; null is none.
func blocksOf[T any](ctx context.Context, block schema.ListNestedBlock, values []T, diags *diag.Diagnostics) types.List {
	element := block.NestedObject.Type()
	if len(values) == 0 {
		return types.ListNull(element)
	}
	list, d := types.ListValueFrom(ctx, element, values)
	diags.Append(d...)
	return list
}

// orAssumed returns a string or, while it is unknown, one that is valid in its place.
func orAssumed(s types.String, valid string) string {
	if s.IsUnknown() {
		return valid
	}
	return s.ValueString()
}
