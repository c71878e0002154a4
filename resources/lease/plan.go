package lease

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/news"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/object"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ValidateConfig applies the domain's rules to the known values of the configuration.
func (r *Resource) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest,
	resp *resource.ValidateConfigResponse) {
	var config Terms
	resp.Diagnostics.Append(object.Get(ctx, req.Config, &config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(validate(ctx, config)...)
}

// validate checks the known values. It assumes that unknown values are valid.
func validate(ctx context.Context, t Terms) diag.Diagnostics {
	settings, diags := expand(ctx, t)
	if diags.HasError() {
		return diags
	}
	ask := sandbox.Acquire{
		AgentDID:      t.AgentDID.ValueString(),
		EnvironmentID: t.EnvironmentID.ValueString(),
		Settings:      settings,
	}
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

// paths maps a field of the domain to its path and name in the configuration.
func paths(field string) (path.Path, string, bool) {
	field = strings.TrimPrefix(field, "settings.")
	if strings.HasPrefix(field, "expiry_conditions[") {
		return path.Root("expiry_conditions"), "Every expiry condition", true
	}
	if key, is := strings.CutPrefix(field, "labels."); is {
		return path.Root("labels").AtMapKey(key), "The label " + key, true
	}
	return path.Root(field), field, true
}

// ModifyPlan plans a new lease as active, and the next generation of an ended lease if on_expiry asks for it. The next
// generation is an update, not a replacement: if the lease cannot be acquired again, the state keeps its end.
// ModifyPlan notes a planned destroy for the plan of the environment.
func (r *Resource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() { // destroy
		var id, owner types.String
		resp.Diagnostics.Append(req.State.GetAttribute(ctx, path.Root("id"), &id)...)
		resp.Diagnostics.Append(req.State.GetAttribute(ctx, path.Root("owner"), &owner)...)
		if r.Provider != nil {
			r.Provider.PlanRelease(id.ValueString(), owner.ValueString())
		}
		return
	}
	if req.State.Raw.IsNull() {
		resp.Diagnostics.Append(resp.Plan.SetAttribute(ctx, path.Root("status"), string(sandbox.LeaseActive))...)
		resp.Diagnostics.Append(r.checkEnvironment(ctx, req.Plan)...)
		return
	}
	// Most leases are active. Read the full models only for ended ones.
	var status types.String
	resp.Diagnostics.Append(req.State.GetAttribute(ctx, path.Root("status"), &status)...)
	if resp.Diagnostics.HasError() || !hasEnded(status) {
		return
	}
	var plan, state Model
	resp.Diagnostics.Append(object.Get(ctx, req.Plan, &plan)...)
	resp.Diagnostics.Append(object.Get(ctx, req.State, &state)...)
	if resp.Diagnostics.HasError() || plan.OnExpiry.ValueString() == onExpiryKeep ||
		!plan.AgentDID.Equal(state.AgentDID) || !plan.EnvironmentID.Equal(state.EnvironmentID) {
		return
	}
	next, diags := r.outlook(ctx, &plan, req.Private)
	resp.Diagnostics.Append(diags...)
	if next == waits || resp.Diagnostics.HasError() {
		return
	}
	plan.again()
	if next == unknown {
		plan.Status, plan.EndedAt = types.StringUnknown(), types.StringUnknown()
		plan.EndedBy, plan.EndReason, plan.Cost = types.StringUnknown(), types.StringUnknown(), types.StringUnknown()
	}
	resp.Diagnostics.Append(object.Set(ctx, &resp.Plan, plan)...)
}

// checkEnvironment refuses to create a lease that its environment, which has ended or is gone, does not grant.
// Otherwise the apply would fail only after it has destroyed the lease that the new one replaces. It knows only what
// this run has read.
func (r *Resource) checkEnvironment(ctx context.Context, planned tfsdk.Plan) (diags diag.Diagnostics) {
	var environment types.String
	diags.Append(planned.GetAttribute(ctx, path.Root("environment_id"), &environment)...)
	id := environment.ValueString()
	if diags.HasError() || r.Provider == nil || r.Provider.Reopening(id) != configured.NotReopened {
		return diags
	}
	env, _ := r.Provider.Read(id)
	end := endOf(env)
	if end.Gone {
		diags.AddAttributeError(path.Root("environment_id"), "Environment Was Destroyed", fmt.Sprintf(
			"Environment %s is %s and grants no leases. Create the environment first. If this configuration creates it, let "+
				"environment_id refer to it, so that the plan sees it first.", id, env.Status))
		return diags
	}
	if end.By == "" { // most environments are open: read the full model only for an ended one
		return diags
	}
	var m Model
	diags.Append(object.Get(ctx, planned, &m)...)
	settings, d := expand(ctx, m.Terms)
	diags.Append(d...)
	if by, ends := end.ends(settings); ends {
		diags.AddAttributeError(path.Root("environment_id"), "Environment Has Ended", fmt.Sprintf(
			"Environment %s ended by %s and grants no leases that %s would end, so the lease of agent %s cannot be created. "+
				"Raise the environment's epoch to %d: the same apply reopens it and creates the lease. If environment_id is a "+
				"literal, let it refer to the environment, so that the plan sees the new epoch first.",
			id, by, by, orUnknown(m.AgentDID), end.Epoch+1))
	}
	return diags
}

func orUnknown(agent types.String) string {
	if agent.IsUnknown() {
		return "that is known after apply"
	}
	return agent.ValueString()
}

// outlook is what happens next to an ended lease.
type outlook int

const (
	returns outlook = iota // with its next generation
	waits                  // for its environment
	unknown                // until the plan knows more of the configuration
)

// outlook returns what happens next to an ended lease that on_expiry does not keep. If leases of the environment wait,
// one warning covers all of them. The environment is planned before its leases, which refer to it.
func (r *Resource) outlook(ctx context.Context, plan *Model, in news.Private) (outlook, diag.Diagnostics) {
	if plan.OnExpiry.IsUnknown() {
		return unknown, nil
	}
	if r.Provider == nil {
		return returns, nil
	}
	settings, diags := expand(ctx, plan.Terms)
	end, d := keptEnvironmentEnd(ctx, in)
	diags.Append(d...)
	if diags.HasError() {
		return returns, diags
	}
	id := plan.EnvironmentID.ValueString()
	by, ends := end.ends(settings)
	reopening := r.Provider.Reopening(id)
	if end.Gone && reopening == configured.NotReopened {
		if r.Provider.TellOnce("waits", id) {
			diags.AddWarning("Leases Wait For Environment "+id, fmt.Sprintf(
				"Environment %s was destroyed. Nothing is planned for its leases whose on_expiry is recreate, such as %s. "+
					"Create the environment again: the next plan leases their sandboxes again. Otherwise remove the leases from "+
					"the configuration.", id, plan.ID.ValueString()))
		}
		return waits, diags
	}
	if ends && reopening == configured.MaybeReopened {
		return unknown, diags
	}
	if ends && reopening == configured.NotReopened {
		if r.Provider.TellOnce("waits", id) {
			diags.AddWarning("Leases Wait For Environment "+id, fmt.Sprintf(
				"Environment %s ended by %s and grants no leases that %s would end. Nothing is planned for its leases whose "+
					"on_expiry is recreate, such as %s. Raise the environment's epoch to %d: the same apply reopens it and leases "+
					"their sandboxes again. For a lease whose environment_id is a literal, the next apply does so.",
				id, by, by, plan.ID.ValueString(), end.Epoch+1))
		}
		return waits, diags
	}
	next := end.afford(r.Provider.PlannedBudget(id))
	if next == waits && r.Provider.TellOnce("waits for the budget", id) {
		diags.AddWarning("Leases Wait For The Budget Of Environment "+id, end.spentNotice(id, plan.ID.ValueString()))
	}
	return next, diags
}

// again plans the next generation.
func (m *Model) again() {
	m.Status = types.StringValue(string(sandbox.LeaseActive))
	m.EndedAt, m.EndedBy, m.EndReason = types.StringNull(), types.StringNull(), types.StringNull()
	m.Cost = types.StringNull()
	m.SandboxID, m.LeasedAt, m.Image = types.StringUnknown(), types.StringUnknown(), types.StringUnknown()
	m.Generation, m.MemoryMB, m.PIDs = types.Int64Unknown(), types.Int64Unknown(), types.Int64Unknown()
	m.CPUs = types.Float64Unknown()
}

// replacesWhatLives makes a change replace a lease that has not ended. An ended lease takes its new settings over in
// its next generation.
func replacesWhatLives(ctx context.Context, req planmodifier.StringRequest,
	resp *stringplanmodifier.RequiresReplaceIfFuncResponse) {
	var status types.String
	resp.Diagnostics.Append(req.State.GetAttribute(ctx, path.Root("status"), &status)...)
	resp.RequiresReplace = !hasEnded(status)
}
