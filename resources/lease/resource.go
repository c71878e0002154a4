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
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var (
	_ resource.ResourceWithConfigure      = (*Resource)(nil)
	_ resource.ResourceWithImportState    = (*Resource)(nil)
	_ resource.ResourceWithModifyPlan     = (*Resource)(nil)
	_ resource.ResourceWithValidateConfig = (*Resource)(nil)
)

// Timeouts where the configuration has none.
const (
	createTimeout = 5 * time.Minute
	deleteTimeout = 5 * time.Minute
)

// NewResource returns the resource, not configured.
func NewResource() resource.Resource { return &Resource{} }

// Resource manages one agent's lease.
type Resource struct {
	configured.Resource
}

// Metadata names the resource.
func (r *Resource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_lease"
}

// Create acquires the lease for a new owner. What a failed acquire leaves of this owner gets into
// the state, so that the next apply removes it.
func (r *Resource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m Model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(configured.Identify(ctx, resp.Identity, sandbox.LeaseID(m.AgentDID.ValueString(), m.EnvironmentID.ValueString()))...)
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
	ask := sandbox.Acquire{AgentDID: m.AgentDID.ValueString(), EnvironmentID: m.EnvironmentID.ValueString(), Owner: r.Provider.NewOwner(), Settings: settings}
	acquired, err := svc.Acquire(ctx, ask)
	lease := acquired.Lease
	switch {
	case err != nil:
		resp.Diagnostics.Append(acquireFailed(failed, ask, err)...)
		var ours bool
		if lease, ours = made(ctx, svc, ask); !ours {
			return
		}
	case lease.Status != sandbox.LeaseActive:
		resp.Diagnostics.AddError(failed, fmt.Sprintf("Lease %s was acquired and ended at once by %s: %s.", lease.ID, lease.EndedBy, lease.EndReason))
	}
	resp.Diagnostics.Append(flatten(ctx, lease, svc.LedgerID, &m)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

func acquireFailed(summary string, ask sandbox.Acquire, err error) diag.Diagnostics {
	if sandbox.ReasonOf(err) != sandbox.ReasonOtherOwner {
		return diagnose.Failed(summary, err, paths)
	}
	return diag.Diagnostics{diag.NewErrorDiagnostic(summary, fmt.Sprintf(
		"%s.\n\nTo manage the lease with this resource, import it:\n\n  terraform import sandbox_lease.<name> '%s'", err, sandbox.LeaseID(ask.AgentDID, ask.EnvironmentID)))}
}

// made returns what a failed acquire has left: what the ledger has of this owner or, when the
// ledger does not answer, what was asked for. False: there is nothing.
func made(ctx context.Context, svc service.Leases, ask sandbox.Acquire) (sandbox.Lease, bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	id := sandbox.LeaseID(ask.AgentDID, ask.EnvironmentID)
	l, err := svc.GetLease(ctx, id)
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		return sandbox.Lease{}, false
	case err != nil:
		return sandbox.Lease{ID: id, AgentDID: ask.AgentDID, EnvironmentID: ask.EnvironmentID, Owner: ask.Owner, Settings: ask.Settings}, true
	default:
		return l, l.Owner == ask.Owner
	}
}

// Read refreshes the state from ledger and backend, and changes neither a lease nor a backend.
func (r *Resource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m Model
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	resp.Diagnostics.Append(configured.Identify(ctx, resp.Identity, m.ID.ValueString())...)
	if resp.Diagnostics.HasError() {
		return
	}
	const failed = "Reading Lease Failed"
	svc, err := r.Provider.OpenLedger(ctx, m.LedgerID.ValueString())
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed(failed, err, nil)...)
		return
	}
	lease, err := svc.ObserveLease(ctx, m.ID.ValueString())
	if d, gone := vanished(lease, err, &m); gone {
		resp.Diagnostics.Append(d)
		resp.State.RemoveResource(ctx)
		return
	}
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed(failed, err, nil)...)
		return
	}
	resp.Diagnostics.Append(notices(lease, &m)...)
	resp.Diagnostics.Append(flatten(ctx, lease, svc.LedgerID, &m)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// Update renews the lease with its new settings. One that has ended keeps them for its next
// generation; there is nothing to renew.
func (r *Resource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m Model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(configured.Identify(ctx, resp.Identity, m.ID.ValueString())...)
	settings, diags := expand(ctx, m.Terms)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	if m.ended() {
		resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
		return
	}
	const failed = "Renewing Lease Failed"
	svc, err := r.Provider.OpenLedger(ctx, m.LedgerID.ValueString())
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed(failed, err, nil)...)
		return
	}
	lease, err := svc.Renew(ctx, sandbox.Renew{LeaseRef: m.ref(), Settings: &settings})
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed(failed, err, paths)...)
		return
	}
	// The rest was planned as the state has it; what happens meanwhile is for the next Read to tell.
	resp.Diagnostics.Append(m.flattenSettings(ctx, lease.Settings)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// Delete releases exactly the generation and owner of the state, and waits until its sandbox is
// gone. A lease that has ended, vanished or gone on to another generation is success.
func (r *Resource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var m Model
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	timeout, diags := m.Timeouts.Delete(ctx, deleteTimeout)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	const failed = "Releasing Lease Failed"
	svc, err := r.Provider.OpenLedger(ctx, m.LedgerID.ValueString())
	if err == nil {
		err = release(ctx, svc, m.ref())
	}
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed(failed, err, nil)...)
	}
}

// release releases this generation of this owner, and waits until its sandbox is gone. One that has
// ended, vanished, gone on to another generation or, without a generation, was never made is success.
func release(ctx context.Context, svc service.Leases, ref sandbox.LeaseRef) error {
	_, err := svc.Release(ctx, ref)
	neverMade := ref.Generation == 0 && sandbox.ReasonOf(err) == sandbox.ReasonOtherOwner
	if neverMade || sandbox.CodeOf(err) == sandbox.NotFound || sandbox.ReasonOf(err) == sandbox.ReasonOtherGeneration {
		return nil
	}
	return err
}

// ImportState adopts the lease with this id, with the owner that it has.
func (r *Resource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	var id types.String
	resource.ImportStatePassthroughWithIdentity(ctx, path.Root("id"), path.Root("id"), req, resp)
	resp.Diagnostics.Append(resp.State.GetAttribute(ctx, path.Root("id"), &id)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if _, _, err := sandbox.ParseLeaseID(id.ValueString()); err != nil {
		resp.Diagnostics.AddError("Importing Lease Failed", strings.ToUpper(err.Error()[:1])+err.Error()[1:]+".")
		return
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("on_expiry"), onExpiryKeep)...)
}
