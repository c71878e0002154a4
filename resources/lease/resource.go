// Package lease is the Terraform resource sandbox_lease.
package lease

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/journal"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/news"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/object"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var (
	_ resource.ResourceWithConfigure      = (*Resource)(nil)
	_ resource.ResourceWithImportState    = (*Resource)(nil)
	_ resource.ResourceWithModifyPlan     = (*Resource)(nil)
	_ resource.ResourceWithValidateConfig = (*Resource)(nil)
)

// Default timeouts.
const (
	createTimeout = 5 * time.Minute
	deleteTimeout = 5 * time.Minute
)

// NewResource returns the unconfigured resource.
func NewResource() resource.Resource { return &Resource{} }

// Resource manages one agent's lease.
type Resource struct {
	configured.Resource
}

// Metadata names the resource.
func (r *Resource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_lease"
}

// Create acquires the lease for an owner of its own. If the state of an earlier Create was lost, it reuses that owner.
// What a failed acquire leaves for this owner goes into the state, so that the next apply removes it.
func (r *Resource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m Model
	resp.Diagnostics.Append(object.Get(ctx, req.Plan, &m)...)
	timeout, diags := m.Timeouts.Create(ctx, createTimeout)
	resp.Diagnostics.Append(diags...)
	settings, diags := expand(ctx, m.Terms)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	const failed = "Acquiring Lease Failed"
	svc, err := r.Provider.Open(ctx)
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed(failed, err, nil)...)
		return
	}
	ask := sandbox.Acquire{
		AgentDID:      m.AgentDID.ValueString(),
		EnvironmentID: m.EnvironmentID.ValueString(),
		Settings:      settings,
	}
	entry := journaled(svc.LedgerID, sandbox.LeaseID(ask.AgentDID, ask.EnvironmentID))
	resp.Diagnostics.Append(configured.IdentifyIn(ctx, resp.Identity, svc.LedgerID, entry.ID)...)
	owner, resumed, diags := r.Provider.Begin(entry)
	ask.Owner = owner
	resp.Diagnostics.Append(diags...)
	r.Provider.Changed(entry.ID)
	lease, err := acquire(ctx, svc, ask, resumed)
	switch {
	case err != nil:
		var ours bool
		if lease, ours = leftBehind(ctx, svc, ask); ours {
			resp.Diagnostics.Append(diagnose.Partly(failed, err, paths,
				"The lease may exist. It is in Terraform's state, and the next apply replaces it.")...)
		} else {
			resp.Diagnostics.Append(acquireFailed(ctx, svc, failed, ask, err)...)
			r.Provider.Held(ctx, entry, ask.Owner)
			return
		}
	case lease.Status != sandbox.LeaseActive:
		resp.Diagnostics.AddError(failed, fmt.Sprintf("Lease %s was acquired and ended at once by %s: %s. "+
			"It is in Terraform's state. Once the cause is gone, lease it again with terraform apply -replace.",
			lease.ID, lease.EndedBy, lease.EndReason))
	}
	resp.Diagnostics.Append(news.See(ctx, resp.Private, r.Provider.Now())...)
	resp.Diagnostics.Append(flatten(ctx, lease, svc.LedgerID, &m)...)
	resp.Diagnostics.Append(object.Set(ctx, &resp.State, m)...)
}

// acquire acquires the lease. If an earlier Create made it with other settings, acquire updates the settings. If the
// lease ends while its sandbox starts, acquire returns its end.
func acquire(ctx context.Context, svc service.Leases, ask sandbox.Acquire, resumed bool) (sandbox.Lease, error) {
	acquired, err := svc.Acquire(ctx, ask)
	if resumed && sandbox.ReasonOf(err) == sandbox.ReasonOtherSettings {
		ref := sandbox.LeaseRef{ID: sandbox.LeaseID(ask.AgentDID, ask.EnvironmentID), Owner: ask.Owner}
		if _, err = svc.Renew(ctx, sandbox.Renew{LeaseRef: ref, Settings: &ask.Settings}); err == nil {
			acquired, err = svc.Acquire(ctx, ask) // waits until its sandbox is ready
		}
	}
	if sandbox.CodeOf(err) == sandbox.LeaseEnded {
		if l, ours := leftBehind(ctx, svc, ask); ours && !l.EndedAt.IsZero() {
			return l, nil
		}
	}
	return acquired.Lease, err
}

// journaled identifies the lease in the journal of pending creations.
func journaled(ledgerID, id string) journal.Object {
	return journal.Object{Kind: journal.Lease, LedgerID: ledgerID, ID: id}
}

func acquireFailed(ctx context.Context, svc service.Leases, summary string, ask sandbox.Acquire,
	err error) diag.Diagnostics {
	if sandbox.ReasonOf(err) != sandbox.ReasonOtherOwner {
		return diagnose.Failed(summary, err, paths)
	}
	id := sandbox.LeaseID(ask.AgentDID, ask.EnvironmentID)
	next := ""
	// If the lookup fails, omit the advice.
	held, unknown := svc.GetLease(ctx, id)
	if unknown == nil && strings.HasPrefix(held.Owner, configured.OwnerPrefix) { // this resource may hold the lease
		next = "\n\nIf this resource holds the lease and is being replaced, remove create_before_destroy from its " +
			"lifecycle: an agent has at most one lease in an environment, so the old one must end first."
	}
	return diag.Diagnostics{diag.NewErrorDiagnostic(summary, fmt.Sprintf(
		"%s.\n\nTo manage the lease with this resource, import it:\n\n  terraform import sandbox_lease.<name> '%s'%s",
		err, id, next))}
}

// leftBehind returns the lease that a failed acquire left. If the ledger does not answer, it returns the requested
// lease. It returns false if this owner has no lease.
func leftBehind(ctx context.Context, svc service.Leases, ask sandbox.Acquire) (sandbox.Lease, bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	id := sandbox.LeaseID(ask.AgentDID, ask.EnvironmentID)
	l, err := svc.GetLease(ctx, id)
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		return sandbox.Lease{}, false
	case err != nil:
		return sandbox.Lease{
			ID:            id,
			AgentDID:      ask.AgentDID,
			EnvironmentID: ask.EnvironmentID,
			Owner:         ask.Owner,
			Settings:      ask.Settings,
		}, true
	default:
		return l, l.Owner == ask.Owner
	}
}

// Read refreshes the state from ledger and backend. It changes neither the lease nor the backend.
func (r *Resource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m Model
	resp.Diagnostics.Append(object.Get(ctx, req.State, &m)...)
	resp.Diagnostics.Append(configured.IdentifyIn(ctx, resp.Identity, m.LedgerID.ValueString(), m.ID.ValueString())...)
	if resp.Diagnostics.HasError() {
		return
	}
	const failed = "Reading Lease Failed"
	svc, err := r.Provider.OpenLedger(ctx, m.LedgerID.ValueString())
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed(failed, err, nil)...)
		return
	}
	r.Provider.Held(ctx, journaled(svc.LedgerID, m.ID.ValueString()), m.Owner.ValueString())
	lease, err := r.Provider.Observe(ctx, svc, m.ID.ValueString())
	leasedAt, _ := time.Parse(time.RFC3339, m.LeasedAt.ValueString()) // zero while it is being created
	since, diags := news.SeenAt(ctx, req.Private, leasedAt, lease.EndedAt)
	resp.Diagnostics.Append(diags...)
	if d, gone := vanished(lease, err, &m); gone {
		resp.Diagnostics.Append(r.fold(ctx, svc, lease, since, d)...)
		resp.State.RemoveResource(ctx)
		return
	}
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed(failed, err, nil)...)
		return
	}
	for _, n := range notices(lease, &m) {
		resp.Diagnostics.Append(r.fold(ctx, svc, lease, since, n)...)
	}
	resp.Diagnostics.Append(news.See(ctx, resp.Private, r.Provider.Now())...)
	resp.Diagnostics.Append(flatten(ctx, lease, svc.LedgerID, &m)...)
	if m.ended() {
		resp.Diagnostics.Append(r.keepEnvironmentEnd(ctx, svc, lease.EnvironmentID, resp.Private)...)
	}
	resp.Diagnostics.Append(object.Set(ctx, &resp.State, m)...)
}

// Update renews the lease with its new settings. If the plan leases an ended one again, Update acquires its next
// generation for the same owner. Otherwise an ended lease keeps the settings for its next generation, and Update renews
// nothing.
func (r *Resource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m, state Model
	resp.Diagnostics.Append(object.Get(ctx, req.Plan, &m)...)
	resp.Diagnostics.Append(object.Get(ctx, req.State, &state)...)
	resp.Diagnostics.Append(configured.IdentifyIn(ctx, resp.Identity, m.LedgerID.ValueString(), m.ID.ValueString())...)
	settings, diags := expand(ctx, m.Terms)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	if state.ended() && !m.ended() {
		resp.Diagnostics.Append(r.leaseAgain(ctx, &m, &state, settings)...)
		if !resp.Diagnostics.HasError() {
			resp.Diagnostics.Append(object.Set(ctx, &resp.State, m)...)
		}
		return
	}
	if m.ended() {
		resp.Diagnostics.Append(object.Set(ctx, &resp.State, m)...)
		return
	}
	const failed = "Renewing Lease Failed"
	svc, err := r.Provider.OpenLedger(ctx, m.LedgerID.ValueString())
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed(failed, err, nil)...)
		return
	}
	r.Provider.Changed(m.ID.ValueString())
	lease, err := svc.Renew(ctx, sandbox.Renew{LeaseRef: m.ref(), Settings: &settings})
	if err != nil {
		resp.Diagnostics.Append(renewFailed(ctx, svc, failed, m.ID.ValueString(), "That was after it was planned, so its "+
			"settings did not change. Run Terraform again: what it plans follows on_expiry.", err)...)
		return
	}
	// The other planned values equal the state's. The next Read reports what changes meanwhile.
	resp.Diagnostics.Append(m.flattenSettings(ctx, lease.Settings)...)
	resp.Diagnostics.Append(object.Set(ctx, &resp.State, m)...)
}

// leaseAgain acquires the next generation for the lease's current owner.
func (r *Resource) leaseAgain(ctx context.Context, m, state *Model, settings sandbox.LeaseSettings) diag.Diagnostics {
	timeout, diags := m.Timeouts.Create(ctx, createTimeout)
	if diags.HasError() {
		return diags
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	const failed = "Leasing Again Failed"
	svc, err := r.Provider.OpenLedger(ctx, m.LedgerID.ValueString())
	if err != nil {
		return diagnose.Failed(failed, err, nil)
	}
	ask := sandbox.Acquire{
		AgentDID:      m.AgentDID.ValueString(),
		EnvironmentID: m.EnvironmentID.ValueString(),
		Owner:         m.Owner.ValueString(),
		Settings:      settings,
	}
	switch l, err := acquire(ctx, svc, ask, false); {
	case err != nil:
		if left, ours := leftBehind(ctx, svc, ask); ours && left.EndedAt.IsZero() &&
			left.Generation != state.Generation.ValueInt64() {
			return diagnose.Partly(failed, err, paths,
				"The lease may exist again. Terraform's state has its end, and the next plan finds it.")
		}
		return acquireFailed(ctx, svc, failed, ask, err)
	case l.Status != sandbox.LeaseActive:
		return diag.Diagnostics{diag.NewErrorDiagnostic(failed, fmt.Sprintf(
			"Lease %s was acquired again and ended at once by %s: %s. Run Terraform again once the cause is gone.",
			l.ID, l.EndedBy, l.EndReason))}
	default:
		return flatten(ctx, l, svc.LedgerID, m)
	}
}

// Delete releases exactly the generation and owner in the state, and waits until its sandbox is gone. It succeeds if
// the lease has ended, has vanished or has a later generation.
func (r *Resource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var m Model
	resp.Diagnostics.Append(object.Get(ctx, req.State, &m)...)
	timeout, diags := m.Timeouts.Delete(ctx, deleteTimeout)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	const failed = "Releasing Lease Failed"
	svc, err := r.Provider.OpenLedger(ctx, m.LedgerID.ValueString())
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed(failed, err, nil)...)
		return
	}
	r.Provider.Changed(m.ID.ValueString())
	if err := release(ctx, svc, m.ref()); err != nil {
		resp.Diagnostics.Append(diagnose.Begun(failed, err, nil, "The lease may have ended. Terraform's state still has it, "+
			"and the next destroy makes sure that its sandbox is gone.")...)
		return
	}
	r.Provider.Held(ctx, journaled(svc.LedgerID, m.ID.ValueString()), m.Owner.ValueString())
}

// release releases this generation for this owner, and waits until its sandbox is gone. It succeeds if the lease has
// ended, has vanished or has a later generation. Generation 0 also succeeds if the lease was never acquired.
func release(ctx context.Context, svc service.Leases, ref sandbox.LeaseRef) error {
	_, err := svc.Release(ctx, ref)
	neverMade := ref.Generation == 0 && sandbox.ReasonOf(err) == sandbox.ReasonOtherOwner
	if neverMade || sandbox.CodeOf(err) == sandbox.NotFound || sandbox.ReasonOf(err) == sandbox.ReasonOtherGeneration {
		return nil
	}
	return err
}

// ImportState adopts the lease with this id, and keeps its owner.
func (r *Resource) ImportState(ctx context.Context, req resource.ImportStateRequest,
	resp *resource.ImportStateResponse) {
	var id types.String
	const failed = "Importing Lease Failed"
	r.Provider.Import(ctx, failed, req, resp)
	resp.Diagnostics.Append(resp.State.GetAttribute(ctx, path.Root("id"), &id)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if _, _, err := sandbox.ParseLeaseID(id.ValueString()); err != nil {
		resp.Diagnostics.AddError(failed, strings.ToUpper(err.Error()[:1])+err.Error()[1:]+".")
		return
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("on_expiry"), onExpiryKeep)...)
}
