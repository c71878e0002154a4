package lease

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/ephemeral/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var (
	_ ephemeral.EphemeralResourceWithClose          = (*Ephemeral)(nil)
	_ ephemeral.EphemeralResourceWithConfigure      = (*Ephemeral)(nil)
	_ ephemeral.EphemeralResourceWithRenew          = (*Ephemeral)(nil)
	_ ephemeral.EphemeralResourceWithValidateConfig = (*Ephemeral)(nil)
)

// openTimeout limits opening if the configuration sets no timeout. Closing has deleteTimeout, because Terraform passes
// it no configuration.
const (
	openTimeout  = 5 * time.Minute
	renewTimeout = time.Minute
)

// NewEphemeral returns the unconfigured ephemeral resource.
func NewEphemeral() ephemeral.EphemeralResource { return &Ephemeral{} }

// Ephemeral holds one agent's lease while Terraform runs.
type Ephemeral struct {
	provider *configured.Provider
}

// EphemeralModel is the ephemeral resource in configuration and while it is open.
type EphemeralModel struct {
	Terms
	Timeouts   timeouts.Value `tfsdk:"timeouts"`
	ID         types.String   `tfsdk:"id"`
	LedgerID   types.String   `tfsdk:"ledger_id"`
	SandboxID  types.String   `tfsdk:"sandbox_id"`
	Generation types.Int64    `tfsdk:"generation"`
	Image      types.String   `tfsdk:"image"`
	LeasedAt   types.String   `tfsdk:"leased_at"`
}

// held is what an open lease remembers, so that it renews and releases nothing else.
type held struct {
	LedgerID string           `json:"ledger_id"`
	Lease    sandbox.LeaseRef `json:"lease"`
}

const heldKey = "held"

// Metadata names the ephemeral resource.
func (e *Ephemeral) Metadata(_ context.Context, req ephemeral.MetadataRequest, resp *ephemeral.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_lease"
}

// Configure takes over the configured provider.
func (e *Ephemeral) Configure(_ context.Context, req ephemeral.ConfigureRequest, resp *ephemeral.ConfigureResponse) {
	p, diags := configured.From(req.ProviderData)
	resp.Diagnostics.Append(diags...)
	e.provider = p
}

// ValidateConfig applies the domain's rules to the known values of the configuration.
func (e *Ephemeral) ValidateConfig(ctx context.Context, req ephemeral.ValidateConfigRequest,
	resp *ephemeral.ValidateConfigResponse) {
	var config EphemeralModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(validate(ctx, config.Terms)...)
}

// Open acquires the lease for a new owner. Terraform does not call Close after a failed Open, so Open releases the
// lease that a failed acquire left.
func (e *Ephemeral) Open(ctx context.Context, req ephemeral.OpenRequest, resp *ephemeral.OpenResponse) {
	var m EphemeralModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	timeout, diags := m.Timeouts.Open(ctx, openTimeout)
	resp.Diagnostics.Append(diags...)
	settings, diags := expand(ctx, m.Terms)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	const failed = "Opening Lease Failed"
	svc, err := e.provider.Open(ctx)
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed(failed, err, nil)...)
		return
	}
	ask := sandbox.Acquire{
		AgentDID:      m.AgentDID.ValueString(),
		EnvironmentID: m.EnvironmentID.ValueString(),
		Owner:         e.provider.NewOwner(),
		Settings:      settings,
	}
	e.provider.Changed(sandbox.LeaseID(ask.AgentDID, ask.EnvironmentID))
	l, err := acquire(ctx, svc, ask, false)
	if err != nil {
		resp.Diagnostics.Append(diagnose.Partly(failed, err, paths, wayOut(err))...)
		resp.Diagnostics.Append(takeBack(ctx, svc, ask)...)
		return
	}
	if l.Status != sandbox.LeaseActive {
		resp.Diagnostics.AddError(failed, fmt.Sprintf("Lease %s was acquired and ended at once by %s: %s. "+
			"Run Terraform again once the cause is gone.",
			l.ID, l.EndedBy, l.EndReason))
		return
	}
	m.flatten(l, svc.LedgerID)
	resp.Diagnostics.Append(resp.Result.Set(ctx, &m)...)
	private, err := json.Marshal(held{
		LedgerID: svc.LedgerID,
		Lease:    sandbox.LeaseRef{ID: l.ID, Generation: l.Generation, Owner: l.Owner},
	})
	if err != nil {
		panic(err) // strings and a number always encode
	}
	resp.Diagnostics.Append(resp.Private.SetKey(ctx, heldKey, private)...)
	if resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(takeBack(ctx, svc, ask)...)
		return
	}
	resp.RenewAt = renewAt(l)
}

// takeBack releases the lease that a failed acquire left. Its owner is unique to that acquire.
func takeBack(ctx context.Context, svc service.Leases, ask sandbox.Acquire) diag.Diagnostics {
	l, ours := leftBehind(ctx, svc, ask)
	if !ours {
		return nil
	}
	return closed(context.WithoutCancel(ctx), svc, sandbox.LeaseRef{ID: l.ID, Generation: l.Generation, Owner: l.Owner})
}

func (m *EphemeralModel) flatten(l sandbox.Lease, ledgerID string) {
	m.ID = types.StringValue(l.ID)
	m.LedgerID = types.StringValue(ledgerID)
	m.SandboxID = value.String(l.SandboxID)
	m.Generation = types.Int64Value(l.Generation)
	m.Image = value.String(l.Image)
	m.LeasedAt = value.Time(l.LeasedAt)
}

// renewAt returns the time halfway between the last activity and the expiry, or zero once a renewal no longer extends
// the lease.
func renewAt(l sandbox.Lease) time.Time {
	if !l.ExpiresAt.Before(l.LeasedAt.Add(time.Duration(l.MaxLifetime))) {
		return time.Time{}
	}
	return l.LastActivity.Add(l.ExpiresAt.Sub(l.LastActivity) / 2)
}

// Renew renews the lease. It fails if the lease has ended, because what Terraform does with it from then on would fail.
func (e *Ephemeral) Renew(ctx context.Context, req ephemeral.RenewRequest, resp *ephemeral.RenewResponse) {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	h, svc, diags := e.reopen(ctx, "Renewing Lease Failed", req.Private)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	l, err := svc.Renew(ctx, sandbox.Renew{LeaseRef: h.Lease})
	if err != nil {
		resp.Diagnostics.Append(renewFailed(ctx, svc, "Renewing Lease Failed", h.Lease.ID, "What uses it from here on "+
			"fails. Run Terraform again, with a longer ttl or max_lifetime if its time was up.", err)...)
		return
	}
	resp.RenewAt = renewAt(l)
}

// wayOut says what to do if the environment must change before the lease can be opened, "" for other errors. Terraform
// opens the lease before it applies that change, so a plan with both fails.
func wayOut(err error) string {
	switch sandbox.CodeOf(err) {
	case sandbox.EnvironmentEnded, sandbox.BudgetExceeded:
		return "Terraform opens this lease before it changes the environment. So apply that change alone first, with " +
			"terraform apply -target=ADDRESS, where ADDRESS is that of the sandbox_environment. To destroy everything " +
			"instead, run terraform destroy -refresh=false."
	default:
		return ""
	}
}

// Close releases exactly the generation and owner that Open acquired, and waits until its sandbox is gone. It succeeds
// if the lease has ended meanwhile, or has a later generation.
func (e *Ephemeral) Close(ctx context.Context, req ephemeral.CloseRequest, resp *ephemeral.CloseResponse) {
	h, svc, diags := e.reopen(ctx, "Closing Lease Failed", req.Private)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(closed(ctx, svc, h.Lease)...)
}

func closed(ctx context.Context, svc service.Leases, ref sandbox.LeaseRef) diag.Diagnostics {
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	if err := release(ctx, svc, ref); err != nil {
		return diagnose.Begun("Closing Lease Failed", err, nil, "The lease may have ended. If it has not, its ttl ends it.")
	}
	return nil
}

// privateData is what Terraform passes back for an open lease.
type privateData interface {
	GetKey(ctx context.Context, key string) ([]byte, diag.Diagnostics)
}

// reopen returns what an open lease remembers, and the service on the ledger where it was opened.
func (e *Ephemeral) reopen(ctx context.Context, failed string,
	private privateData) (held, configured.Service, diag.Diagnostics) {
	var h held
	text, diags := private.GetKey(ctx, heldKey)
	if diags.HasError() {
		return held{}, configured.Service{}, diags
	}
	if err := json.Unmarshal(text, &h); err != nil {
		diags.AddError(failed, fmt.Sprintf(
			"Terraform's record of the open lease, %q, cannot be read: %v. This is a defect; please report it.", text, err))
		return held{}, configured.Service{}, diags
	}
	svc, err := e.provider.OpenLedger(ctx, h.LedgerID)
	if err != nil {
		diags.Append(diagnose.Failed(failed, err, nil)...)
	}
	return h, svc, diags
}
