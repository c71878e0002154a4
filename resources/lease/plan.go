package lease

import (
	"context"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ValidateConfig applies the rules of the domain to what is known of the configuration.
func (r *Resource) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	var config Model
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(validate(ctx, config.Terms)...)
}

// validate checks the known values; an unknown one is taken to be valid.
func validate(ctx context.Context, t Terms) diag.Diagnostics {
	settings, diags := expand(ctx, t)
	if diags.HasError() {
		return diags
	}
	for i, c := range settings.ExpiryConditions {
		if c == "" { // an unknown element
			settings.ExpiryConditions[i] = "unknown.condition"
		}
	}
	ask := sandbox.Acquire{AgentDID: t.AgentDID.ValueString(), EnvironmentID: t.EnvironmentID.ValueString(), Settings: settings}
	if t.AgentDID.IsUnknown() {
		ask.AgentDID = "did:unknown:unknown"
	}
	if t.EnvironmentID.IsUnknown() {
		ask.EnvironmentID = "unknown"
	}
	if err := ask.Validate(); err != nil {
		diags.Append(diagnose.Failed("Invalid Lease", err, paths)...)
	}
	return diags
}

// paths says where a field of the domain stands in the configuration, and what it is called there.
func paths(field string) (path.Path, string, bool) {
	field = strings.TrimPrefix(field, "settings.")
	if strings.HasPrefix(field, "expiry_conditions") {
		return path.Root("expiry_conditions"), "Every expiry condition", true
	}
	return path.Root(field), field, true
}

// ModifyPlan plans that a new lease is active, and the replacement of one that has ended where
// on_expiry asks for it. The status is planned to a known value, so that the plan shows
// "expired" -> "active" as what forces the replacement.
func (r *Resource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() { // destroy
		return
	}
	status := path.Root("status")
	if req.State.Raw.IsNull() {
		resp.Diagnostics.Append(resp.Plan.SetAttribute(ctx, status, string(sandbox.LeaseActive))...)
		return
	}
	var state Model
	var onExpiry types.String
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	resp.Diagnostics.Append(req.Plan.GetAttribute(ctx, path.Root("on_expiry"), &onExpiry)...)
	if resp.Diagnostics.HasError() || !state.ended() || onExpiry.ValueString() != onExpiryRecreate {
		return
	}
	resp.Diagnostics.Append(resp.Plan.SetAttribute(ctx, status, string(sandbox.LeaseActive))...)
	resp.RequiresReplace = append(resp.RequiresReplace, status)
}
