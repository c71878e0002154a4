package configured

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
)

// Listed is one object that a list resource has found.
type Listed struct {
	ID string
	// LedgerID is that of the ledger which the object is in.
	LedgerID string
	// Fill writes the object into a model that Terraform's list result holds, null but for its id.
	Fill func(ctx context.Context, result *list.ListResult) diag.Diagnostics
}

// Answer reads the list block's configuration into model, and has what find finds by it handed to Terraform.
// title is that of its errors.
func Answer(ctx context.Context, req list.ListRequest, stream *list.ListResultsStream, model any, title string,
	find func() ([]Listed, error)) {
	diags := req.Config.Get(ctx, model)
	var found []Listed
	if !diags.HasError() {
		var err error
		if found, err = find(); err != nil {
			diags.Append(diagnose.Failed(title, err, nil)...)
		}
	}
	if diags.HasError() {
		stream.Results = list.ListResultsStreamDiagnostics(diags)
		return
	}
	stream.Results = results(ctx, req, found)
}

// results hands found objects to Terraform, at most as many as it asked for; the objects themselves only
// where it asked for them.
func results(ctx context.Context, req list.ListRequest, found []Listed) func(push func(list.ListResult) bool) {
	if req.Limit > 0 && int64(len(found)) > req.Limit {
		found = found[:req.Limit]
	}
	return func(push func(list.ListResult) bool) {
		for _, f := range found {
			result := req.NewListResult(ctx)
			result.DisplayName = f.ID
			result.Diagnostics.Append(IdentifyIn(ctx, result.Identity, f.LedgerID, f.ID)...)
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
