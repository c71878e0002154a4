// Package environment is the Terraform resource sandbox_environment.
package environment

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var (
	_ resource.ResourceWithConfigure      = (*Resource)(nil)
	_ resource.ResourceWithImportState    = (*Resource)(nil)
	_ resource.ResourceWithModifyPlan     = (*Resource)(nil)
	_ resource.ResourceWithValidateConfig = (*Resource)(nil)
)

// Timeouts where the configuration has none. A destroy waits until the environment's sandboxes are gone.
const (
	createTimeout = 15 * time.Minute
	updateTimeout = 15 * time.Minute
	deleteTimeout = 10 * time.Minute
	// lookTimeout bounds the look for what a Create has left whose own time may be over.
	lookTimeout = time.Minute
)

// NewResource returns the resource, not configured.
func NewResource() resource.Resource { return &Resource{} }

// Resource manages one environment.
type Resource struct {
	configured.Resource
}

// Metadata names the resource.
func (r *Resource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_environment"
}

// Create makes the environment; one of that name that exists is a conflict.
func (r *Resource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m Model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(configured.Identify(ctx, resp.Identity, m.Name.ValueString())...)
	spec, diags := expand(ctx, m)
	resp.Diagnostics.Append(diags...)
	var secrets types.Map
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("secrets"), &secrets)...)
	values, diags := secretValues(ctx, secrets, types.MapNull(types.StringType))
	resp.Diagnostics.Append(diags...)
	timeout, diags := m.Timeouts.Create(ctx, createTimeout)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	const failed = "Creating Environment Failed"
	svc, err := r.Provider.Open(ctx)
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed(failed, err, nil)...)
		return
	}
	owner := r.Provider.NewOwner()
	env, err := svc.PutEnvironment(ctx, sandbox.PutEnvironment{
		ID: m.Name.ValueString(), Owner: owner, Epoch: m.Epoch.ValueInt64(), EnvironmentSpec: spec, SecretValues: values, CreateOnly: true,
		Instance: m.Instance.ValueString(), // "" while it is unknown
	})
	if err != nil {
		resp.Diagnostics.Append(createFailed(failed, m, err)...)
		var ours bool
		if env, ours = made(ctx, svc, sandbox.Environment{ID: m.Name.ValueString(), Owner: owner, EnvironmentSpec: spec}); !ours {
			return
		}
	}
	resp.Diagnostics.Append(flatten(ctx, env, svc.LedgerID, &m)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// made returns what a failed Create has left, so that it gets into the state: what the ledger has
// of this owner or, when the ledger does not answer, what was asked for. False: there is nothing.
func made(ctx context.Context, svc service.Environments, asked sandbox.Environment) (sandbox.Environment, bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	env, err := svc.GetEnvironment(ctx, asked.ID)
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		return sandbox.Environment{}, false
	case err != nil:
		return asked, true
	default:
		return env, env.Owner == asked.Owner && env.Status != sandbox.EnvironmentDestroyed
	}
}

func createFailed(summary string, m Model, err error) diag.Diagnostics {
	if sandbox.CodeOf(err) != sandbox.Conflict {
		return diagnose.Failed(summary, err, place)
	}
	return diag.Diagnostics{diag.NewErrorDiagnostic(summary, fmt.Sprintf(
		"%s.\n\nTo manage the existing environment with this resource, import it:\n\n  terraform import sandbox_environment.<name> %s", err, m.Name.ValueString()))}
}

// Read refreshes the state. It warns when the environment has ended or is removed in part, and drops it from
// the state, with a warning, only when the ledger that it was made on does not have it any more.
func (r *Resource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m Model
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	resp.Diagnostics.Append(configured.Identify(ctx, resp.Identity, m.ID.ValueString())...)
	if resp.Diagnostics.HasError() {
		return
	}
	const failed = "Reading Environment Failed"
	svc, err := r.Provider.OpenLedger(ctx, m.LedgerID.ValueString())
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed(failed, err, nil)...)
		return
	}
	id := m.ID.ValueString()
	env, err := svc.GetEnvironment(ctx, id)
	if why, gone := vanished(env, err, m.Owner.ValueString()); gone {
		resp.Diagnostics.AddWarning(fmt.Sprintf("Environment %s Vanished", id), fmt.Sprintf(
			"%s. It was not removed by this configuration. It is dropped from Terraform's state, and the next apply creates it again.", why))
		resp.State.RemoveResource(ctx)
		return
	}
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed(failed, err, nil)...)
		return
	}
	ended := env.Status == sandbox.EnvironmentClosed && m.Status.ValueString() != string(sandbox.EnvironmentClosed)
	resp.Diagnostics.Append(flatten(ctx, env, svc.LedgerID, &m)...)
	if ended {
		resp.Diagnostics.AddWarning(fmt.Sprintf("Environment %s Ended", id), fmt.Sprintf(
			"Environment %s ended at %s by %s and gives out no more leases. Expected; this is not drift, and nothing is planned for it. To reopen it, raise its epoch to %d.",
			id, m.EndedAt.ValueString(), env.EndedBy, env.Epoch+1))
	}
	if env.Status == sandbox.EnvironmentDeleting {
		resp.Diagnostics.AddWarning(fmt.Sprintf("Environment %s Is Removed In Part", id), fmt.Sprintf(
			"The removal of environment %s began at %s and has not come to its end, so that some of it may still be there. The next apply removes the rest and, where it is configured, makes it anew.",
			id, value.Time(env.UpdatedAt).ValueString()))
	}
	resp.Diagnostics.Append(budgetNotice(env)...)
	resp.Diagnostics.Append(driftNotice(env)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// vanished reports whether, and why, the environment in the state is no more.
func vanished(env sandbox.Environment, err error, owner string) (why string, gone bool) {
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		return "The ledger has no such environment: " + err.Error(), true
	case err != nil:
		return "", false
	case env.Status == sandbox.EnvironmentDestroyed:
		return fmt.Sprintf("Environment %s was destroyed outside of Terraform at %s", env.ID, value.Time(env.UpdatedAt).ValueString()), true
	case owner != "" && env.Owner != owner:
		return fmt.Sprintf("Environment %s was destroyed outside of Terraform and made anew by another owner, %s", env.ID, env.Owner), true
	default:
		return "", false
	}
}

// Update changes the environment in place.
func (r *Resource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m Model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(configured.Identify(ctx, resp.Identity, m.Name.ValueString())...)
	spec, diags := expand(ctx, m)
	resp.Diagnostics.Append(diags...)
	var secrets, sent types.Map
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("secrets"), &secrets)...)
	resp.Diagnostics.Append(req.State.GetAttribute(ctx, path.Root("secrets"), &sent)...)
	values, diags := secretValues(ctx, secrets, sent)
	resp.Diagnostics.Append(diags...)
	var instance types.String // as configured: the plan repeats the state's, also when the backend changes
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("instance"), &instance)...)
	timeout, diags := m.Timeouts.Update(ctx, updateTimeout)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	const failed = "Updating Environment Failed"
	svc, err := r.Provider.OpenLedger(ctx, m.LedgerID.ValueString())
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed(failed, err, nil)...)
		return
	}
	env, err := svc.PutEnvironment(ctx, sandbox.PutEnvironment{
		ID: m.ID.ValueString(), Owner: m.Owner.ValueString(), Epoch: m.Epoch.ValueInt64(), EnvironmentSpec: spec, SecretValues: values,
		Instance: instance.ValueString(),
	})
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed(failed, err, place)...)
		return
	}
	planned := m
	resp.Diagnostics.Append(flatten(ctx, env, svc.LedgerID, &m)...)
	// A game may end between plan and apply, and a change of the backend changes the instance. What was planned
	// stands; the next Read tells.
	m.Status, m.EndedBy, m.EndedAt, m.Instance = planned.Status, planned.EndedBy, planned.EndedAt, planned.Instance
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// Delete destroys the environment, and nothing that another owner has made under its name.
func (r *Resource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var m Model
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	timeout, diags := m.Timeouts.Delete(ctx, deleteTimeout)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	const failed = "Destroying Environment Failed"
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	svc, err := r.Provider.OpenLedger(ctx, m.LedgerID.ValueString())
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed(failed, err, nil)...)
		return
	}
	env, err := svc.GetEnvironment(ctx, m.ID.ValueString())
	if _, gone := vanished(env, err, m.Owner.ValueString()); gone {
		return
	}
	if err == nil {
		err = svc.DeleteEnvironment(ctx, sandbox.DeleteEnvironment{
			ID: m.ID.ValueString(), Force: m.ForceDestroy.ValueBool(),
		})
	}
	switch {
	case err == nil, sandbox.CodeOf(err) == sandbox.NotFound:
	case sandbox.ReasonOf(err) == sandbox.ReasonActiveLeases:
		resp.Diagnostics.AddError(failed, err.Error()+".\n\nEnd these leases, or set force_destroy = true and apply before destroying. "+
			"Leases of this configuration are destroyed first when their environment_id refers to this resource.")
	default:
		resp.Diagnostics.Append(diagnose.Failed(failed, err, nil)...)
	}
}

// ImportState adopts the environment of that name, with the owner that it has.
func (r *Resource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	resource.ImportStatePassthroughWithIdentity(ctx, path.Root("id"), path.Root("id"), req, resp)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("force_destroy"), false)...)
}
