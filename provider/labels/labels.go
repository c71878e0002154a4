// Package labels is the label filter of data sources.
package labels

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/given"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Filter describes the attribute. what begins its description, such as "Only leases".
func Filter(what string) schema.Attribute {
	return schema.MapAttribute{
		MarkdownDescription: what + " that have all of these labels. Default: all.",
		Optional:            true,
		ElementType:         types.StringType,
		Validators:          []validator.Map{given.NoNulls{}},
	}
}

// Selector returns the configured filter.
func Selector(ctx context.Context, m types.Map) (sandbox.LabelSelector, diag.Diagnostics) {
	labels := make(map[string]string)
	if m.IsNull() {
		return "", nil
	}
	diags := m.ElementsAs(ctx, &labels, false)
	conditions := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		conditions = append(conditions, key+"="+labels[key])
	}
	return sandbox.LabelSelector(strings.Join(conditions, ",")), diags
}
