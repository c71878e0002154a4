package lease

import (
	"context"
	"slices"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/collection"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/duration"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Terms are the settings that the resource and the ephemeral resource ask for in a lease.
type Terms struct {
	AgentDID         types.String   `tfsdk:"agent_did"`
	EnvironmentID    types.String   `tfsdk:"environment_id"`
	TTL              duration.Value `tfsdk:"ttl"`
	SleepAfter       duration.Value `tfsdk:"sleep_after"`
	MaxLifetime      duration.Value `tfsdk:"max_lifetime"`
	ExpiryConditions types.Set      `tfsdk:"expiry_conditions"`
	Labels           types.Map      `tfsdk:"labels"`
}

// Model is the resource in configuration, plan and state.
type Model struct {
	Terms
	OnExpiry types.String   `tfsdk:"on_expiry"`
	Timeouts timeouts.Value `tfsdk:"timeouts"`

	ID         types.String  `tfsdk:"id"`
	Owner      types.String  `tfsdk:"owner"`
	LedgerID   types.String  `tfsdk:"ledger_id"`
	SandboxID  types.String  `tfsdk:"sandbox_id"`
	Generation types.Int64   `tfsdk:"generation"`
	Status     types.String  `tfsdk:"status"`
	LeasedAt   types.String  `tfsdk:"leased_at"`
	EndedAt    types.String  `tfsdk:"ended_at"`
	EndedBy    types.String  `tfsdk:"ended_by"`
	EndReason  types.String  `tfsdk:"end_reason"`
	Cost       types.String  `tfsdk:"cost_usd"`
	Image      types.String  `tfsdk:"image"`
	MemoryMB   types.Int64   `tfsdk:"memory_mb"`
	CPUs       types.Float64 `tfsdk:"cpus"`
	PIDs       types.Int64   `tfsdk:"pids_limit"`
}

// ended reports whether the lease in the state has ended by the rules.
func (m *Model) ended() bool { return hasEnded(m.Status) }

func hasEnded(status types.String) bool {
	switch sandbox.LeaseStatus(status.ValueString()) {
	case sandbox.LeaseExpired, sandbox.LeaseDestroyed:
		return true
	default:
		return false
	}
}

func (m *Model) ref() sandbox.LeaseRef {
	return sandbox.LeaseRef{ID: m.ID.ValueString(), Generation: m.Generation.ValueInt64(), Owner: m.Owner.ValueString()}
}

// expand returns the lease's own settings. Null and unknown values are left to the environment. A valid condition
// replaces an unknown one.
func expand(ctx context.Context, t Terms) (sandbox.LeaseSettings, diag.Diagnostics) {
	settings := sandbox.LeaseSettings{
		TTL:         t.TTL.Pointer(),
		SleepAfter:  t.SleepAfter.Pointer(),
		MaxLifetime: t.MaxLifetime.Pointer(),
	}
	var diags diag.Diagnostics
	if !t.ExpiryConditions.IsNull() && !t.ExpiryConditions.IsUnknown() {
		var conditions []types.String // some may be unknown
		diags = t.ExpiryConditions.ElementsAs(ctx, &conditions, false)
		for _, c := range conditions {
			if c.IsUnknown() {
				c = types.StringValue("unknown.condition")
			}
			settings.ExpiryConditions = append(settings.ExpiryConditions, c.ValueString())
		}
		slices.Sort(settings.ExpiryConditions)
	}
	if len(t.Labels.Elements()) > 0 {
		var labels map[string]types.String // some may be unknown
		diags.Append(t.Labels.ElementsAs(ctx, &labels, false)...)
		settings.Labels = make(map[string]string, len(labels))
		for key, value := range labels {
			settings.Labels[key] = value.ValueString()
		}
	}
	return settings, diags
}

// flatten writes a lease into the model. Where the backend differs, it writes what was observed there.
func flatten(ctx context.Context, l sandbox.Lease, ledgerID string, m *Model) diag.Diagnostics {
	m.ID = types.StringValue(l.ID)
	m.AgentDID = types.StringValue(l.AgentDID)
	m.EnvironmentID = types.StringValue(l.EnvironmentID)
	m.Owner = types.StringValue(l.Owner)
	m.LedgerID = types.StringValue(ledgerID)
	m.SandboxID = value.String(l.SandboxID)
	m.Generation = types.Int64Value(l.Generation)
	m.Status = value.String(l.Status)
	m.LeasedAt = value.Time(l.LeasedAt)
	m.EndedAt = value.Time(l.EndedAt)
	m.EndedBy = value.String(l.EndedBy)
	m.Cost = types.StringNull() // it grows while the lease lives
	if !l.EndedAt.IsZero() {
		m.Cost = types.StringValue(l.Cost.String())
	}
	if !l.PurgedAt.IsZero() { // the ledger has purged the rest, the state still has it
		return nil
	}
	m.EndReason = value.String(l.EndReason)
	m.Image = value.String(l.Image)
	m.MemoryMB = types.Int64Value(l.Resources.MemoryMB)
	m.CPUs = value.Cores(l.Resources.CPUMillis)
	m.PIDs = types.Int64Value(l.Resources.PIDs)
	for _, f := range l.Drift {
		m.observe(f)
	}
	if l.EndedAt.IsZero() { // the settings of an ended lease are history
		return m.flattenSettings(ctx, l.Settings)
	}
	return nil
}

func (t *Terms) flattenSettings(ctx context.Context, s sandbox.LeaseSettings) diag.Diagnostics {
	t.TTL = duration.FromPointer(s.TTL)
	t.SleepAfter = duration.FromPointer(s.SleepAfter)
	t.MaxLifetime = duration.FromPointer(s.MaxLifetime)
	var diags diag.Diagnostics
	t.Labels = collection.TextMapLike(ctx, s.Labels, t.Labels, &diags)
	if len(s.ExpiryConditions) == 0 {
		t.ExpiryConditions = types.SetNull(types.StringType)
		return diags
	}
	conditions, d := types.SetValueFrom(ctx, types.StringType, s.ExpiryConditions)
	t.ExpiryConditions = conditions
	return append(diags, d...)
}

// observe replaces an attribute with the value that a finding observed on the backend.
func (m *Model) observe(f sandbox.DriftFinding) {
	figure, err := strconv.ParseInt(f.Observed, 10, 64)
	switch {
	case f.Field == "image":
		m.Image = types.StringValue(f.Observed)
	case err != nil: // not a number: no attribute shows it
	case f.Field == "memory_mb":
		m.MemoryMB = types.Int64Value(figure)
	case f.Field == "cpu_millis":
		m.CPUs = value.Cores(figure)
	case f.Field == "pids_limit":
		m.PIDs = types.Int64Value(figure)
	}
}
