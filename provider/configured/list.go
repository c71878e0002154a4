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
	// LedgerID is the id of the object's ledger.
	LedgerID string
	// Fill writes the object into the model in Terraform's list result, where only the id is set.
	Fill func(ctx context.Context, result *list.ListResult) diag.Diagnostics
}

// Answer reads the list block's configuration into model, then passes the results of find to Terraform. title is the
// title of errors.
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

// results passes the found objects to Terraform, up to its limit. It includes the full objects only if Terraform asks
// for them.
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
