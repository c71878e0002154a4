package environment

import (
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/collection"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/duration"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Model is the resource in configuration, plan and state.
type Model struct {
	Name             types.String   `tfsdk:"name"`
	Type             types.String   `tfsdk:"type"`
	Backend          types.String   `tfsdk:"backend"`
	Image            types.String   `tfsdk:"image"`
	ImagePull        types.String   `tfsdk:"image_pull"`
	InstanceType     types.String   `tfsdk:"instance_type"`
	Resources        *Size          `tfsdk:"resources"`
	Network          *Network       `tfsdk:"network"`
	WarmPool         *WarmPool      `tfsdk:"warm_pool"`
	Budget           *Budget        `tfsdk:"budget"`
	TTL              duration.Value `tfsdk:"ttl"`
	MaxLifetime      duration.Value `tfsdk:"max_lifetime"`
	SleepAfter       duration.Value `tfsdk:"sleep_after"`
	SleepMode        types.String   `tfsdk:"sleep_mode"`
	KeepDisk         types.Bool     `tfsdk:"keep_disk"`
	ExpiryConditions types.Set      `tfsdk:"expiry_conditions"`
	Env              types.Map      `tfsdk:"env"`
	EnvPassthrough   types.Set      `tfsdk:"env_passthrough"`
	EnvBlocked       types.Set      `tfsdk:"env_blocked"`
	BuiltinTools     types.Set      `tfsdk:"builtin_tools"`
	Secrets          types.Map      `tfsdk:"secrets"`
	LLM              types.Map      `tfsdk:"llm"`
	Companions       types.Map      `tfsdk:"companions"`
	Mounts           types.List     `tfsdk:"mount"`
	Copies           types.List     `tfsdk:"copy"`
	Archives         types.List     `tfsdk:"archive"`
	Snapshot         *Snapshot      `tfsdk:"state"`
	Workspace        *Workspace     `tfsdk:"workspace"`
	InitialData      types.Map      `tfsdk:"initial_state"`
	Skills           types.Map      `tfsdk:"skills"`
	Confinement      *Confinement   `tfsdk:"confinement"`
	PostStart        types.List     `tfsdk:"post_start"`
	Processes        types.List     `tfsdk:"process"`
	PostMortem       duration.Value `tfsdk:"post_mortem"`
	CommandTimeout   duration.Value `tfsdk:"command_timeout"`
	Labels           types.Map      `tfsdk:"labels"`
	Epoch            types.Int64    `tfsdk:"epoch"`
	ForceDestroy     types.Bool     `tfsdk:"force_destroy"`
	ExpectedUsage    *Usage         `tfsdk:"expected_usage"`
	MaxMonthlyCost   types.String   `tfsdk:"max_monthly_cost_usd"`
	Timeouts         timeouts.Value `tfsdk:"timeouts"`

	ID               types.String `tfsdk:"id"`
	Owner            types.String `tfsdk:"owner"`
	LedgerID         types.String `tfsdk:"ledger_id"`
	Instance         types.String `tfsdk:"instance"`
	Status           types.String `tfsdk:"status"`
	EndedBy          types.String `tfsdk:"ended_by"`
	EndedAt          types.String `tfsdk:"ended_at"`
	MonthlyCost      types.String `tfsdk:"estimated_monthly_cost_usd"`
	MonthlyLeaseCost types.String `tfsdk:"estimated_monthly_cost_per_lease_usd"`
	PlatformCost     types.String `tfsdk:"estimated_monthly_platform_cost_usd"`
	Drift            types.List   `tfsdk:"drift"`
}

// Usage is the expected_usage attribute.
type Usage struct {
	Leases          types.Int64   `tfsdk:"leases"`
	HoursPerDay     types.Float64 `tfsdk:"hours_per_day"`
	CPUSharePercent types.Int64   `tfsdk:"cpu_share_percent"`
	CommandsPerHour types.Int64   `tfsdk:"commands_per_hour"`
}

// expand converts the model to a specification. Null and unknown values stay zero, or become a valid value where zero
// is invalid. Of secrets, it has only the names.
func expand(ctx context.Context, m Model) (sandbox.EnvironmentSpec, diag.Diagnostics) {
	var diags diag.Diagnostics
	spec := sandbox.EnvironmentSpec{
		Type:        sandbox.EnvironmentType(m.Type.ValueString()),
		Backend:     sandbox.Backend(m.Backend.ValueString()),
		Image:       m.Image.ValueString(),
		ImagePull:   sandbox.ImagePull(m.ImagePull.ValueString()),
		Resources:   expandResources(m),
		SleepAfter:  m.SleepAfter.Pointer(),
		SleepMode:   sandbox.SleepMode(m.SleepMode.ValueString()),
		KeepDisk:    m.KeepDisk.ValueBool() && m.sizeKnown(), // an unknown size would be checked as the default
		TTL:         orZero(m.TTL),
		MaxLifetime: orZero(m.MaxLifetime),
		PostMortem:  m.PostMortem.Pointer(),

		CommandTimeout: orZero(m.CommandTimeout),
	}
	diags.Append(expandNetwork(ctx, m.Network, &spec)...)
	spec.WarmPool = m.WarmPool.expand()
	spec.Budget = m.Budget.expand()
	spec.Env = collection.TextMap(ctx, m.Env, &diags)
	spec.EnvPassthrough = collection.Known(collection.Strings(ctx, m.EnvPassthrough, &diags))
	spec.EnvBlocked = collection.Known(collection.Strings(ctx, m.EnvBlocked, &diags))
	spec.BuiltinTools = collection.Known(collection.Strings(ctx, m.BuiltinTools, &diags))
	spec.Secrets = m.secretNames()
	spec.Companions = m.expandCompanions(ctx, &diags)
	assumed := m.assumedSecret(spec.Companions)
	spec.LLM = m.expandLLM(ctx, assumed, &diags)
	spec.Mounts = expandMounts(ctx, m.Mounts, &diags)
	spec.Copies = expandCopies(ctx, m.Copies, &diags)
	spec.Archives = m.expandArchives(ctx, assumed, &diags)
	spec.Snapshot = m.Snapshot.expand()
	spec.Workspace = m.Workspace.expand(assumed)
	spec.InitialData = collection.TextMap(ctx, m.InitialData, &diags)
	spec.Skills = collection.TextMap(ctx, m.Skills, &diags)
	spec.Confinement = m.Confinement.expand()
	if !m.memoryKnown() { // it would be checked as the default
		spec.Confinement = ofAnyMemory(spec.Confinement)
	}
	spec.PostStart = expandPostStart(ctx, m.PostStart, &diags)
	spec.Processes = expandProcesses(ctx, m.Processes, &diags)
	spec.Labels = collection.TextMap(ctx, m.Labels, &diags)
	for _, c := range collection.Strings(ctx, m.ExpiryConditions, &diags) {
		spec.ExpiryConditions = append(spec.ExpiryConditions, orAssumed(c, "unknown.condition"))
	}
	slices.Sort(spec.ExpiryConditions)
	return spec, diags
}

// flatten writes an environment into the model. Where the model already has an equivalent form, it keeps that form. It
// does not touch what only Terraform knows.
func flatten(ctx context.Context, env sandbox.Environment, ledgerID string, m *Model) diag.Diagnostics {
	var diags diag.Diagnostics
	spec := env.WithDefaults()
	m.Name, m.ID = types.StringValue(env.ID), types.StringValue(env.ID)
	m.Type = types.StringValue(string(spec.Type))
	m.Backend = types.StringValue(string(spec.Backend))
	m.Image = types.StringValue(spec.Image)
	m.ImagePull = types.StringValue(string(spec.ImagePull))
	m.flattenResources(spec)
	diags.Append(m.flattenNetwork(ctx, spec)...)
	m.TTL = duration.New(spec.TTL)
	m.MaxLifetime = duration.New(spec.MaxLifetime)
	m.SleepAfter = duration.FromPointer(spec.SleepAfter)
	m.SleepMode = types.StringValue(string(spec.SleepMode))
	m.KeepDisk = types.BoolValue(spec.KeepDisk)
	m.flattenPool(spec)
	m.flattenBudget(spec.Budget)
	m.Env = collection.TextMapLike(ctx, spec.Env, m.Env, &diags)
	m.EnvPassthrough = collection.SetLike(ctx, spec.EnvPassthrough, m.EnvPassthrough, &diags)
	m.EnvBlocked = collection.SetLike(ctx, spec.EnvBlocked, m.EnvBlocked, &diags)
	m.BuiltinTools = collection.SetLike(ctx, spec.BuiltinTools, m.BuiltinTools, &diags)
	m.flattenSecrets(ctx, spec.Secrets, &diags)
	m.flattenLLM(ctx, spec, &diags)
	m.flattenCompanions(ctx, spec, &diags)
	m.flattenHostPaths(ctx, spec.HostAccess, &diags)
	m.flattenArchives(ctx, spec, &diags)
	m.flattenSnapshot(ctx, spec, &diags)
	m.flattenWorkspace(spec)
	m.flattenConfinement(spec.Confinement)
	m.flattenCommands(ctx, spec, &diags)
	m.PostMortem = duration.FromPointer(spec.PostMortem)
	m.CommandTimeout = duration.New(spec.CommandTimeout)
	m.Labels = collection.TextMapLike(ctx, spec.Labels, m.Labels, &diags)
	conditions, d := types.SetValueFrom(ctx, types.StringType, spec.ExpiryConditions)
	diags.Append(d...)
	m.ExpiryConditions = conditions
	m.Epoch = types.Int64Value(env.Epoch)

	m.Owner = types.StringValue(env.Owner)
	m.LedgerID = types.StringValue(ledgerID)
	m.Instance = value.String(env.Instance)
	m.Status = value.String(env.Status)
	m.EndedBy = value.String(env.EndedBy)
	m.EndedAt = value.Time(env.EndedAt)
	m.Drift = flattenDrift(env.Drift)
	return diags
}

func orZero(v duration.Value) sandbox.Duration {
	d, _ := v.Duration()
	return d
}

// orAssumed returns a string, or the given valid one while the string is unknown.
func orAssumed(s types.String, valid string) string {
	if s.IsUnknown() {
		return valid
	}
	return s.ValueString()
}
