package environment

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/news"
)

// unfinishedKey is the key, beside the state, of a failed update. The ledger has the new settings then, and the backend
// may not. A plan that compares settings alone would be empty.
const unfinishedKey = "unfinished"

// markUnfinished records that an update has failed, or that one has succeeded since.
func markUnfinished(ctx context.Context, private news.Private, failed bool) diag.Diagnostics {
	if failed {
		return private.SetKey(ctx, unfinishedKey, []byte("true"))
	}
	return private.SetKey(ctx, unfinishedKey, nil)
}

// addUnfinished adds a failed update to the drift, which the next apply reverts, and warns about it.
func (m *Model) addUnfinished(ctx context.Context, private news.Private) diag.Diagnostics {
	mark, diags := private.GetKey(ctx, unfinishedKey)
	if len(mark) == 0 {
		return diags
	}
	m.Drift = types.ListValueMust(types.StringType, append(slices.Clone(m.Drift.Elements()),
		types.StringValue("update: expected complete, observed failed")))
	diags.AddWarning(fmt.Sprintf("Environment %s Was Updated In Part", m.Name.ValueString()),
		fmt.Sprintf("The last update of environment %s failed, so what it is deployed with may not be as configured. The "+
			"next apply makes the rest.", m.Name.ValueString()))
	return diags
}
