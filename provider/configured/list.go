package configured

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// Listed is one object that a list resource has found.
type Listed struct {
	ID string
	// Fill writes the object into a model that Terraform's list result holds, null but for its id.
	Fill func(ctx context.Context, result *list.ListResult) diag.Diagnostics
}

// Stream hands found objects to Terraform, at most as many as it asked for; the objects themselves only
// where it asked for them.
func Stream(ctx context.Context, req list.ListRequest, found []Listed) func(push func(list.ListResult) bool) {
	if req.Limit > 0 && int64(len(found)) > req.Limit {
		found = found[:req.Limit]
	}
	return func(push func(list.ListResult) bool) {
		for _, f := range found {
			result := req.NewListResult(ctx)
			result.DisplayName = f.ID
			result.Diagnostics.Append(Identify(ctx, result.Identity, f.ID)...)
			if req.IncludeResource {
				result.Diagnostics.Append(result.Resource.SetAttribute(ctx, path.Root("id"), types.StringValue(f.ID))...)
				result.Diagnostics.Append(f.Fill(ctx, &result)...)
			}
			if !push(result) {
				return
			}
		}
	}
}
