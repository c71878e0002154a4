package containerimage

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
)

// ModifyPlan plans the context hash. A hash like the state's keeps the image, any other makes it
// and its reference unknown, so that everything that refers to the image is planned to follow.
func (r *Resource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() { // destroy
		return
	}
	var plan, state Model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if !req.State.Raw.IsNull() {
		resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	}
	if resp.Diagnostics.HasError() || plan.Build == nil {
		return
	}
	hash, diags := plan.Build.hash(ctx)
	resp.Diagnostics.Append(diags...)
	if diags.HasError() {
		return
	}
	plan.ContextHash = hash
	plan.ID = plan.Name
	if state.keeps(plan) {
		plan.ImageID, plan.Reference, plan.Instance = state.ImageID, state.Reference, state.Instance
	} else {
		plan.ImageID, plan.Reference, plan.Instance = types.StringUnknown(), types.StringUnknown(), types.StringUnknown()
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
}

// keeps reports whether the image in the state is what the plan asks for.
func (m *Model) keeps(plan Model) bool {
	return m.ContextHash.ValueString() != "" && m.ContextHash.Equal(plan.ContextHash)
}

// hash returns the context hash, unknown as long as something of it is.
func (b *Build) hash(ctx context.Context) (types.String, diag.Diagnostics) {
	if !b.known() {
		return types.StringUnknown(), nil
	}
	spec, diags := b.expand(ctx)
	if diags.HasError() {
		return types.StringUnknown(), diags
	}
	hash, err := spec.Hash()
	if err != nil {
		at := path.Root("build").AtName("context")
		if sandbox.CodeOf(err) == sandbox.Internal {
			return types.StringUnknown(), diagnose.Failed("Hashing Build Context Failed", err, nil)
		}
		return types.StringUnknown(), diag.Diagnostics{diag.NewAttributeErrorDiagnostic(at, "Invalid Build Context", err.Error()+".")}
	}
	return types.StringValue(hash), nil
}
