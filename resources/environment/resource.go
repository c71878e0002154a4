// Package environment is the Terraform resource sandbox_environment.
package environment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/journal"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/news"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/upgrade"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var (
	_ resource.ResourceWithConfigure      = (*Resource)(nil)
	_ resource.ResourceWithImportState    = (*Resource)(nil)
	_ resource.ResourceWithModifyPlan     = (*Resource)(nil)
	_ resource.ResourceWithUpgradeState   = (*Resource)(nil)
	_ resource.ResourceWithValidateConfig = (*Resource)(nil)
)

// Default timeouts. A destroy waits until the environment's sandboxes are gone.
const (
	createTimeout = 15 * time.Minute
	updateTimeout = 15 * time.Minute
	deleteTimeout = 10 * time.Minute
	// lookTimeout bounds the lookup after a failed Create, whose own deadline may have passed.
	lookTimeout = time.Minute
)

// NewResource returns the unconfigured resource.
func NewResource() resource.Resource { return &Resource{} }

// Resource manages one environment.
type Resource struct {
	configured.Resource
}

// Metadata names the resource.
func (r *Resource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_environment"
}

// UpgradeState upgrades states from versions in which lists of objects were blocks.
func (r *Resource) UpgradeState(ctx context.Context) map[int64]resource.StateUpgrader {
	var now resource.SchemaResponse
	r.Schema(ctx, resource.SchemaRequest{}, &now)
	return upgrade.FromBlocks(now.Schema.Type().TerraformType(ctx), "mount", "copy", "post_start", "process")
}

// Create creates the environment. An existing one with the same name is a conflict, unless an earlier Create of this
// configuration made it and its state was lost.
func (r *Resource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m Model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	spec, diags := expand(ctx, m)
	resp.Diagnostics.Append(diags...)
	var secrets types.Map
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("secrets"), &secrets)...)
	values, diags := secretValues(ctx, secrets, m.Secrets, types.MapNull(types.StringType))
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
	object := journaled(svc.LedgerID, m.Name.ValueString())
	resp.Diagnostics.Append(configured.IdentifyIn(ctx, resp.Identity, svc.LedgerID, object.ID)...)
	owner, _, diags := r.Provider.Begin(object)
	resp.Diagnostics.Append(diags...)
	env, err := create(ctx, svc, sandbox.PutEnvironment{
		ID: m.Name.ValueString(), Owner: owner, Epoch: m.Epoch.ValueInt64(), EnvironmentSpec: spec,
		SecretValues: values, CreateOnly: true,
		Instance: m.Instance.ValueString(), // "" while it is unknown
	})
	if err != nil {
		asked := sandbox.Environment{ID: m.Name.ValueString(), Owner: owner, EnvironmentSpec: spec}
		var ours bool
		if env, ours = leftBehind(ctx, svc, asked); ours {
			resp.Diagnostics.Append(diagnose.Partly(failed, err, place,
				"The environment may exist. It is in Terraform's state, and the next apply replaces it.")...)
		} else {
			resp.Diagnostics.Append(createFailed(failed, m, err)...)
			r.Provider.Held(ctx, object, owner)
			return
		}
	}
	resp.Diagnostics.Append(news.See(ctx, resp.Private, r.Provider.Now())...)
	resp.Diagnostics.Append(flatten(ctx, env, svc.LedgerID, &m)...)
	m.Drift = flattenDrift(nil) // as planned, even if the backend does not answer; the next Read corrects it
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// create creates the environment. If an earlier request with this owner created it, create updates its settings. That
// request may come from an earlier Create, or be a retry whose first answer was lost.
func create(ctx context.Context, svc service.Environments, put sandbox.PutEnvironment) (sandbox.Environment, error) {
	env, err := svc.PutEnvironment(ctx, put)
	if sandbox.ReasonOf(err) != sandbox.ReasonOtherOwner {
		return env, err
	}
	put.CreateOnly = false // the service still refuses another owner's
	env, again := svc.PutEnvironment(ctx, put)
	if sandbox.ReasonOf(again) == sandbox.ReasonOtherOwner {
		return sandbox.Environment{}, err
	}
	return env, again
}

// journaled identifies the environment in the journal of pending creations.
func journaled(ledgerID, id string) journal.Object {
	return journal.Object{Kind: journal.Environment, LedgerID: ledgerID, ID: id}
}

// leftBehind returns the environment that a failed Create left, so that it gets into the state. If the ledger does not
// answer, it returns asked. It returns false if this owner has no environment.
func leftBehind(ctx context.Context, svc service.Environments, asked sandbox.Environment) (sandbox.Environment, bool) {
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
	if sandbox.ReasonOf(err) == sandbox.ReasonOtherInstance && m.Instance.ValueString() != "" {
		return diag.Diagnostics{diag.NewAttributeErrorDiagnostic(path.Root("instance"), summary, err.Error()+".")}
	}
	if sandbox.CodeOf(err) != sandbox.Conflict || sandbox.ReasonOf(err) == sandbox.ReasonOtherInstance {
		return diagnose.Failed(summary, err, place)
	}
	return diag.Diagnostics{diag.NewErrorDiagnostic(summary, fmt.Sprintf(
		"%s.\n\nTo manage the existing environment with this resource, import it:\n\n"+
			"  terraform import sandbox_environment.<name> %s", err, m.Name.ValueString()))}
}

// Read refreshes the state. It warns if the environment has ended or is partly removed. It drops the environment from
// the state, with a warning, only if the ledger that it was created in no longer has it.
func (r *Resource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m Model
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	resp.Diagnostics.Append(configured.IdentifyIn(ctx, resp.Identity, m.LedgerID.ValueString(), m.ID.ValueString())...)
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
	r.Provider.Held(ctx, journaled(svc.LedgerID, id), m.Owner.ValueString())
	env, err := r.Provider.Environment(ctx, svc, id)
	if why, gone := vanished(env, err, m.Owner.ValueString()); gone {
		resp.Diagnostics.AddWarning(fmt.Sprintf("Environment %s Vanished", id), fmt.Sprintf(
			"%s. It was not removed by this configuration. It is dropped from Terraform's state, and the next apply "+
				"creates it again%s.", why, unlessTaken(env, m.Owner.ValueString())))
		resp.State.RemoveResource(ctx)
		return
	}
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed(failed, err, nil)...)
		return
	}
	ended := env.Status == sandbox.EnvironmentClosed && m.Status.ValueString() != string(sandbox.EnvironmentClosed)
	resp.Diagnostics.Append(flatten(ctx, env, svc.LedgerID, &m)...)
	resp.Diagnostics.Append(m.addUnfinished(ctx, req.Private)...)
	if ended {
		since, diags := news.SeenAt(ctx, req.Private, env.EndedAt, env.EndedAt)
		resp.Diagnostics.Append(diags...)
		resp.Diagnostics.Append(r.endNotice(ctx, svc, env, since)...)
	}
	if env.Status == sandbox.EnvironmentDeleting {
		resp.Diagnostics.AddWarning(fmt.Sprintf("Environment %s Is Partly Removed", id), fmt.Sprintf(
			"The removal of environment %s began at %s and is unfinished. The next apply removes the rest and, if it is "+
				"configured, creates the environment again.",
			id, value.Time(env.UpdatedAt).ValueString()))
	}
	resp.Diagnostics.Append(budgetNotice(env)...)
	resp.Diagnostics.Append(driftNotice(env)...)
	resp.Diagnostics.Append(keptNotice(env)...)
	resp.Diagnostics.Append(news.See(ctx, resp.Private, r.Provider.Now())...)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// vanished reports whether the environment in the state no longer exists, and why.
func vanished(env sandbox.Environment, err error, owner string) (why string, gone bool) {
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		return "The ledger has no such environment: " + err.Error(), true
	case err != nil:
		return "", false
	case env.Status == sandbox.EnvironmentDestroyed:
		return fmt.Sprintf("Environment %s was destroyed outside of Terraform at %s",
			env.ID, value.Time(env.UpdatedAt).ValueString()), true
	case isTaken(env, owner):
		return fmt.Sprintf("Environment %s was destroyed outside of Terraform and created again by another owner, %s",
			env.ID, env.Owner), true
	default:
		return "", false
	}
}

// isTaken reports whether another owner has created an environment again under its name.
func isTaken(env sandbox.Environment, owner string) bool {
	return env.ID != "" && env.Status != sandbox.EnvironmentDestroyed && owner != "" && env.Owner != owner
}

// unlessTaken says why the next apply cannot create an environment again, "" if it can.
func unlessTaken(env sandbox.Environment, owner string) string {
	if !isTaken(env, owner) {
		return ""
	}
	return ". That fails until the other owner has destroyed it: choose another name, or import it"
}

// Update changes the environment in place.
func (r *Resource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m Model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(configured.IdentifyIn(ctx, resp.Identity, m.LedgerID.ValueString(), m.Name.ValueString())...)
	var state Model
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	spec, diags := expand(ctx, m)
	spec.Resources = changedResources(m, state)
	resp.Diagnostics.Append(diags...)
	var secrets, sent types.Map
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("secrets"), &secrets)...)
	resp.Diagnostics.Append(req.State.GetAttribute(ctx, path.Root("secrets"), &sent)...)
	values, diags := secretValues(ctx, secrets, m.Secrets, sent)
	resp.Diagnostics.Append(diags...)
	instance, diags := plannedInstance(ctx, req.Config, m)
	resp.Diagnostics.Append(diags...)
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
		ID:              m.ID.ValueString(),
		Owner:           m.Owner.ValueString(),
		Epoch:           m.Epoch.ValueInt64(),
		EnvironmentSpec: spec,
		SecretValues:    values,
		Instance:        instance,
	})
	resp.Diagnostics.Append(markUnfinished(ctx, resp.Private, err != nil)...)
	if err != nil {
		resp.Diagnostics.Append(diagnose.Begun(failed, err, place, "The change may have been made in part. Terraform's "+
			"state is unchanged, and the next apply makes the rest.")...)
		return
	}
	planned := m
	resp.Diagnostics.Append(flatten(ctx, env, svc.LedgerID, &m)...)
	// A game may end between plan and apply, a change of the backend changes the instance, and a backend that does not
	// answer leaves earlier drift. The state gets the planned values; the next Read corrects them.
	m.Status, m.EndedBy, m.EndedAt, m.Instance = planned.Status, planned.EndedBy, planned.EndedAt, planned.Instance
	m.Drift = planned.Drift
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// plannedInstance returns the instance that the configuration names, "" if it names none or ignore_changes ignores it.
// Without one in the configuration, the plan repeats the state's, even if the backend changes.
func plannedInstance(ctx context.Context, config tfsdk.Config, plan Model) (string, diag.Diagnostics) {
	var instance types.String
	diags := config.GetAttribute(ctx, path.Root("instance"), &instance)
	if !instance.Equal(plan.Instance) {
		return "", diags
	}
	return instance.ValueString(), diags
}

// Delete destroys the environment, but not one that another owner has created under its name.
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
		err = r.destroy(ctx, svc, sandbox.DeleteEnvironment{
			ID: m.ID.ValueString(), Owner: m.Owner.ValueString(), Force: m.ForceDestroy.ValueBool(),
		})
	}
	switch {
	case err == nil, sandbox.CodeOf(err) == sandbox.NotFound:
		r.Provider.Held(ctx, journaled(svc.LedgerID, m.ID.ValueString()), m.Owner.ValueString())
	case sandbox.ReasonOf(err) == sandbox.ReasonActiveLeases:
		resp.Diagnostics.AddError(failed, err.Error()+".\n\n"+
			"In Terraform, force is force_destroy = true, applied before the destroy. Leases of this configuration end first "+
			"if their environment_id refers to this resource.")
	default:
		resp.Diagnostics.Append(diagnose.Begun(failed, err, nil, "The environment may have been removed in part. "+
			"Terraform's state still has it, and the next destroy removes the rest.")...)
	}
}

// destroy destroys the environment. If leases block it that a killed apply made and no state holds, destroy releases
// them first.
func (r *Resource) destroy(ctx context.Context, svc configured.Service, d sandbox.DeleteEnvironment) error {
	err := svc.DeleteEnvironment(ctx, d)
	if sandbox.ReasonOf(err) != sandbox.ReasonActiveLeases {
		return err
	}
	lost, unread := r.Provider.Journal.Lost(svc.LedgerID, d.ID)
	if len(lost) == 0 {
		return errors.Join(err, unread)
	}
	for _, l := range lost {
		_, released := svc.Release(ctx, sandbox.LeaseRef{ID: l.ID, Owner: l.Owner})
		switch {
		case released == nil, sandbox.CodeOf(released) == sandbox.NotFound,
			sandbox.ReasonOf(released) == sandbox.ReasonOtherOwner: // it was never created
			r.Provider.Held(ctx, l.Object, l.Owner)
		default:
			return released
		}
	}
	return svc.DeleteEnvironment(ctx, d)
}

// ImportState adopts the environment with this name, and keeps its owner.
func (r *Resource) ImportState(ctx context.Context, req resource.ImportStateRequest,
	resp *resource.ImportStateResponse) {
	r.Provider.Import(ctx, "Importing Environment Failed", req, resp)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("force_destroy"), false)...)
}
