package environment

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/spread"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ModifyPlan fills in values that follow from the configuration: the default conditions, the estimated cost and, if a
// raised epoch reopens the environment, its status. It plans to replace a partly removed environment.
func (r *Resource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() { // destroy
		var state Model
		resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
		if !resp.Diagnostics.HasError() {
			resp.Diagnostics.Append(r.planDestroy(ctx, &state)...)
		}
		return
	}
	var plan Model
	resp.Diagnostics.Append(spread.Plan(req.Plan).Get(ctx, &plan)...)
	var state *Model
	if !req.State.Raw.IsNull() {
		resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	}
	var conditions types.Set
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("expiry_conditions"), &conditions)...)
	var sleepMode types.String
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("sleep_mode"), &sleepMode)...)
	if resp.Diagnostics.HasError() {
		return
	}
	var secrets types.Map
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("secrets"), &secrets)...)
	resp.Diagnostics.Append(missingSecrets(ctx, secrets, state)...)
	if conditions.IsNull() {
		resp.Diagnostics.Append(plan.planConditions(ctx)...)
	}
	if sleepMode.IsNull() {
		plan.planSleepMode()
	}
	plan.Drift = flattenDrift(nil) // an apply reverts drift
	resp.Diagnostics.Append(plan.checkBackend(ctx)...)
	resp.Diagnostics.Append(r.planDirectories(ctx, &plan, state)...)
	resp.Diagnostics.Append(r.checkAccount(&plan)...)
	resp.Diagnostics.Append(r.checkKeepDisk(&plan, state)...)
	resp.Diagnostics.Append(r.planEpoch(&plan, state)...)
	if r.Provider != nil {
		r.Provider.PlanBudget(plan.Name.ValueString(), plan.Budget.planned())
	}
	resp.Diagnostics.Append(r.planCost(ctx, &plan, state)...)
	resp.Diagnostics.Append(r.planBudget(ctx, &plan, state)...)
	resp.Diagnostics.Append(r.planKept(ctx, req.Plan.Raw, &plan, state)...)
	resp.Diagnostics.Append(plan.planMounts(ctx, state)...)
	resp.Diagnostics.Append(r.checkHostPaths(ctx, &plan)...)
	resp.Diagnostics.Append(r.checkWorkspace(&plan)...)
	resp.Diagnostics.Append(r.checkArchives(ctx, &plan)...)
	if state != nil && (!plan.Name.Equal(state.Name) || !plan.Backend.Equal(state.Backend)) {
		resp.Diagnostics.Append(r.planDestroy(ctx, state)...)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	if state != nil && state.Status.ValueString() == string(sandbox.EnvironmentDeleting) {
		plan.Status = types.StringValue(string(sandbox.EnvironmentOpen))
		resp.RequiresReplace = append(resp.RequiresReplace, path.Root("status"))
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
	spread.Back(req.Plan, &resp.Plan)
	resp.Diagnostics.Append(r.checkService(ctx, req, resp.Plan.Raw, &plan, state)...)
}

// planConditions plans the default conditions of the type.
func (m *Model) planConditions(ctx context.Context) diag.Diagnostics {
	if m.Type.IsUnknown() {
		m.ExpiryConditions = types.SetUnknown(types.StringType)
		return nil
	}
	conditions := sandbox.DefaultExpiryConditions(sandbox.EnvironmentType(m.Type.ValueString()))
	set, diags := types.SetValueFrom(ctx, types.StringType, conditions)
	m.ExpiryConditions = set
	return diags
}

// checkBackend refuses what the backend does not support, defaults included.
func (m *Model) checkBackend(ctx context.Context) diag.Diagnostics {
	spec, diags := expand(ctx, *m)
	if err := sandbox.InvalidFields("environment", spec.WithDefaults().Unsupported()); err != nil {
		diags.Append(diagnose.Failed("Unsupported By The Backend", err, place)...)
	}
	return diags
}

// checkAccount refuses at plan time a Cloudflare backend without an account in this process. Otherwise the apply would
// fail only after it has destroyed the environment that the new one replaces.
func (r *Resource) checkAccount(m *Model) (diags diag.Diagnostics) {
	if r.Provider == nil || !r.Provider.Embedded || r.Provider.CloudflareAccount ||
		m.Backend.ValueString() != string(sandbox.Cloudflare) {
		return nil
	}
	diags.AddAttributeError(path.Root("backend"), "No Cloudflare Account", fmt.Sprintf(
		"Environment %s has backend = \"cloudflare\", and the provider has no Cloudflare account. Set account_id and "+
			"api_token in the provider's cloudflare, or configure a reconciler that has an account.",
		orAssumed(m.Name, "whose name is known after apply")))
	return diags
}

// checkKeepDisk refuses keep_disk in an environment that is created under a policy without snapshots. A reconciler
// knows its policy, and Cloudflare knows the policy of an existing environment: checkService asks them.
func (r *Resource) checkKeepDisk(m, state *Model) (diags diag.Diagnostics) {
	if r.Provider == nil || !r.Provider.Embedded || r.Provider.DiskSnapshots || state != nil ||
		m.Backend.ValueString() != string(sandbox.Cloudflare) || !m.KeepDisk.ValueBool() {
		return nil
	}
	diags.AddAttributeError(path.Root("keep_disk"), "No Snapshots Of Disks", fmt.Sprintf(
		"Environment %s has keep_disk, but would be created with the scheduling policy default, which has no snapshots of "+
			"disks. Set scheduling_policy = \"durable_object\" in the provider's cloudflare.", m.Name.ValueString()))
	return diags
}

// planSleepMode plans the default of the backend.
func (m *Model) planSleepMode() {
	m.SleepMode = types.StringUnknown()
	if !m.Backend.IsUnknown() {
		m.SleepMode = types.StringValue(
			string(sandbox.EnvironmentSpec{Backend: sandbox.Backend(m.Backend.ValueString())}.WithDefaults().SleepMode))
	}
}

// planEpoch refuses to lower the epoch. If the epoch rises, it plans to reopen the environment.
func (r *Resource) planEpoch(m, state *Model) diag.Diagnostics {
	if state == nil || !m.Name.Equal(state.Name) {
		r.reopens(m, configured.Reopened)
		return nil
	}
	if state.Epoch.IsNull() {
		return nil
	}
	if m.Epoch.IsUnknown() {
		r.reopens(m, configured.MaybeReopened)
		if !state.EndedBy.IsNull() { // the apply may reopen it
			m.Status, m.EndedBy, m.EndedAt = types.StringUnknown(), types.StringUnknown(), types.StringUnknown()
		}
		return nil
	}
	was, is := state.Epoch.ValueInt64(), m.Epoch.ValueInt64()
	if is < was {
		return diag.Diagnostics{diag.NewAttributeErrorDiagnostic(path.Root("epoch"), "Environment Epoch Goes Down",
			fmt.Sprintf("The epoch of environment %s is %d and was to become %d. It counts how often the environment was "+
				"reopened, so it can only go up. Set epoch = %d; to reopen the environment, a higher one.",
				m.Name.ValueString(), was, is, was))}
	}
	if is > was {
		m.Status = types.StringValue(string(sandbox.EnvironmentOpen))
		m.EndedBy, m.EndedAt = types.StringNull(), types.StringNull()
		r.reopens(m, configured.Reopened)
	}
	return nil
}

// reopens notes what this plan does about the end of the environment.
func (r *Resource) reopens(m *Model, how configured.Reopening) {
	if r.Provider != nil && !m.Name.IsUnknown() {
		r.Provider.Reopen(m.Name.ValueString(), how)
	}
}

// planCost plans the estimated cost and checks it against the cap.
func (r *Resource) planCost(ctx context.Context, m, state *Model) diag.Diagnostics {
	if m.ExpectedUsage == nil {
		m.MonthlyCost, m.MonthlyLeaseCost, m.PlatformCost = types.StringNull(), types.StringNull(), types.StringNull()
		return nil
	}
	var books map[sandbox.Backend]sandbox.PriceBook
	if r.Provider != nil && m.costKnown(ctx) {
		var err error
		if books, err = r.Provider.Prices(ctx); err != nil {
			return diagnose.Failed("Estimating Cost Failed", err, nil)
		}
	}
	if books == nil {
		m.MonthlyCost, m.MonthlyLeaseCost, m.PlatformCost = types.StringUnknown(), types.StringUnknown(),
			types.StringUnknown()
		return nil
	}
	book, ok := books[sandbox.Backend(m.Backend.ValueString())]
	if !ok {
		book = pricing.Free()
	}
	var diags diag.Diagnostics
	spec := sandbox.EnvironmentSpec{
		Backend:   sandbox.Backend(m.Backend.ValueString()),
		Resources: expandResources(*m), Companions: m.expandCompanions(ctx, &diags),
	}
	if state != nil && !m.namesSize() && !state.namesSize() && m.Name.Equal(state.Name) {
		kept, err := r.stored(ctx, state)
		if err != nil {
			return diagnose.Failed("Estimating Cost Failed", err, nil)
		}
		spec = spec.Keeping(kept)
	}
	size := spec.WithDefaults().Size()
	if diags.HasError() {
		return diags
	}
	usage := m.ExpectedUsage.expand()
	estimate := pricing.EstimateMonth(book, size, usage)
	m.MonthlyCost = types.StringValue(estimate.Total.Cents())
	m.MonthlyLeaseCost = types.StringValue(estimate.PerLease.Cents())
	m.PlatformCost = types.StringNull()
	if m.Backend.ValueString() == string(sandbox.Cloudflare) {
		m.PlatformCost = types.StringValue(pricing.EstimatePlatformMonth(pricing.CloudflarePlatform(), usage).Total.Cents())
	}
	return m.checkCap(book)
}

// stored returns the environment from the ledger, which knows the size if the configuration names none.
func (r *Resource) stored(ctx context.Context, state *Model) (sandbox.EnvironmentSpec, error) {
	svc, err := r.Provider.OpenLedger(ctx, state.LedgerID.ValueString())
	if err != nil {
		return sandbox.EnvironmentSpec{}, err
	}
	env, err := svc.GetEnvironment(ctx, state.ID.ValueString())
	if sandbox.CodeOf(err) == sandbox.NotFound {
		err = nil // it vanished and will be created again
	}
	return env.EnvironmentSpec, err
}

// checkCap compares amounts as the user sees them, in whole cents. The validator has already reported an invalid cap.
func (m *Model) checkCap(book sandbox.PriceBook) diag.Diagnostics {
	var estimate, limit sandbox.NanoUSD
	if m.MaxMonthlyCost.IsNull() || m.MaxMonthlyCost.IsUnknown() ||
		limit.UnmarshalText([]byte(m.MaxMonthlyCost.ValueString())) != nil {
		return nil
	}
	if err := estimate.UnmarshalText([]byte(m.MonthlyCost.ValueString())); err != nil {
		return diagnose.Failed("Estimating Cost Failed", err, nil)
	}
	if book == pricing.Free() {
		return diag.Diagnostics{
			diag.NewAttributeErrorDiagnostic(path.Root("max_monthly_cost_usd"), "No Prices For The Cost Cap",
				fmt.Sprintf("Environment %s has max_monthly_cost_usd = %s, but there are no prices for the backend %s, so "+
					"every estimate would be $0.00. Set price_book in the provider's docker block or, with a reconciler, its flag "+
					"--docker-price-book. For an engine that costs nothing, use a book with prices of 0.",
					m.Name.ValueString(), limit, m.Backend.ValueString())),
		}
	}
	if estimate <= limit {
		return nil
	}
	u := m.ExpectedUsage
	return diag.Diagnostics{
		diag.NewAttributeErrorDiagnostic(path.Root("max_monthly_cost_usd"), "Estimated Cost Above The Cap",
			fmt.Sprintf("Environment %s is expected to cost $%s a month (%d leases, %g hours a day, %d %% CPU; price book "+
				"%s), but max_monthly_cost_usd is %s. Choose a smaller size, expect less usage, or raise the cap.",
				m.Name.ValueString(), estimate.Cents(), u.Leases.ValueInt64(), u.HoursPerDay.ValueFloat64(),
				u.CPUSharePercent.ValueInt64(), book.Name, limit)),
	}
}

// costKnown reports whether everything that the estimate depends on is known.
func (m *Model) costKnown(ctx context.Context) bool {
	u := m.ExpectedUsage
	return m.sizeKnown() && m.companionSizesKnown(ctx) && !(m.Backend.IsUnknown() || u.Leases.IsUnknown() ||
		u.HoursPerDay.IsUnknown() || u.CPUSharePercent.IsUnknown() || u.CommandsPerHour.IsUnknown())
}

func (u *Usage) expand() pricing.Usage {
	commands := int64(pricing.DefaultCommandsPerHour)
	if !u.CommandsPerHour.IsNull() {
		commands = u.CommandsPerHour.ValueInt64()
	}
	return pricing.Usage{
		CommandsPerHour: commands,
		Leases:          u.Leases.ValueInt64(),
		HoursPerDay:     time.Duration(u.HoursPerDay.ValueFloat64() * float64(time.Hour)).Round(time.Second),
		CPUSharePercent: u.CPUSharePercent.ValueInt64(),
	}
}

// dollars accepts an amount of US dollars that is not negative, or, if positive is set, more than 0.
type dollars struct{ positive bool }

func (d dollars) Description(context.Context) string {
	if d.positive {
		return "must be an amount of US dollars, more than 0, such as \"15.61\""
	}
	return "must be an amount of US dollars such as \"15.61\""
}

func (d dollars) MarkdownDescription(ctx context.Context) string { return d.Description(ctx) }

func (d dollars) ValidateString(ctx context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	var n sandbox.NanoUSD
	err := n.UnmarshalText([]byte(req.ConfigValue.ValueString()))
	if err == nil && n >= 0 && !(d.positive && n == 0) {
		return
	}
	is := strconv.Quote(req.ConfigValue.ValueString())
	if err != nil {
		if cause, ok := strings.CutPrefix(err.Error(), is+" has "); ok { // otherwise it is not an amount
			is += ", which has " + cause
		}
	}
	resp.Diagnostics.AddAttributeError(req.Path, "Invalid Amount",
		fmt.Sprintf("%s %s, not %s.", req.Path, d.Description(ctx), is))
}

// hours accepts a number of hours of a day.
type hours struct{}

func (hours) Description(context.Context) string { return "must be between 0 and 24" }

func (h hours) MarkdownDescription(ctx context.Context) string { return h.Description(ctx) }

func (h hours) ValidateFloat64(ctx context.Context, req validator.Float64Request, resp *validator.Float64Response) {
	v := req.ConfigValue.ValueFloat64()
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() || v >= 0 && v <= 24 {
		return
	}
	resp.Diagnostics.AddAttributeError(req.Path, "Invalid Number Of Hours",
		fmt.Sprintf("%s %s, not %g.", req.Path, h.Description(ctx), v))
}
