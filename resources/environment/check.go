package environment

import (
	"context"
	"errors"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// checkService refuses at plan time what the service would refuse at apply. Only the service knows what its operator
// allows and what its backends support. A plan without changes asks nothing. Without a reconciler, the plan of a new
// environment does not connect: other checks refuse what this process never allows.
func (r *Resource) checkService(ctx context.Context, req resource.ModifyPlanRequest, planned tftypes.Value, m,
	state *Model) diag.Diagnostics {
	replaces := state != nil && (!m.Name.Equal(state.Name) || !m.Backend.Equal(state.Backend) ||
		state.Status.ValueString() == string(sandbox.EnvironmentDeleting))
	switch {
	case r.Provider == nil, !r.Provider.Reconciler && (!r.Provider.Embedded || state == nil),
		m.Backend.IsUnknown(), planned.Equal(req.State.Raw),
		replaces: // Terraform plans the new environment separately, as a creation
		return nil
	}
	put, diags := request(ctx, *m)
	var instance types.String // from the configuration: the plan repeats the state's
	diags.Append(req.Config.GetAttribute(ctx, path.Root("instance"), &instance)...)
	if diags.HasError() {
		return diags
	}
	put.Instance, put.Epoch, put.CreateOnly = instance.ValueString(), m.Epoch.ValueInt64(), state == nil
	var ledgerID string
	if state != nil {
		put.ID, put.Owner, ledgerID = state.ID.ValueString(), state.Owner.ValueString(), state.LedgerID.ValueString()
		put.Resources = changedResources(*m, *state)
	}
	svc, err := r.Provider.OpenLedger(ctx, ledgerID)
	if err == nil {
		err = restate(refusal(svc.CheckEnvironment(ctx, put), req.Plan.Raw), m)
	}
	const failed = "Checking Environment Failed"
	switch {
	case err == nil:
	case state == nil:
		diags.Append(createFailed(failed, *m, err)...)
	default:
		diags.Append(diagnose.Failed(failed, err, place)...)
	}
	return diags
}

// refusal returns the part of a check's error that the apply would meet too. It drops problems with values that are
// still unknown, and what the apply itself or its token may change. For example, an image may still be built, and
// leases may end. A reconciler older than the check answers NotFound.
func refusal(err error, plan tftypes.Value) error {
	var e *sandbox.Error
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case e.Code == sandbox.NotFound, e.Code == sandbox.CapacityExceeded,
		e.Code == sandbox.Conflict && e.Reason != sandbox.ReasonOtherInstance,
		e.Code == sandbox.Forbidden && e.Reason != sandbox.ReasonCeilingExceeded:
		return nil
	}
	if len(e.Fields) == 0 {
		return err
	}
	is := *e
	is.Fields = slices.DeleteFunc(slices.Clone(e.Fields), func(f sandbox.Field) bool {
		at, _, _ := place(f.Name)
		return !isKnown(plan, at) || at.Steps()[0].Equal(path.PathStepAttributeName("secrets")) || // not sent
			e.Code == sandbox.Forbidden && f.Name == "id" // the apply may delete other environments
	})
	if len(is.Fields) == 0 {
		return nil
	}
	return &is
}

// isKnown reports whether the value at a path is fully known, and so is everything that contains it.
func isKnown(plan tftypes.Value, at path.Path) bool {
	for _, step := range at.Steps() {
		if !plan.IsKnown() {
			return false
		}
		var next any
		var err error
		switch s := step.(type) {
		case path.PathStepAttributeName:
			next, err = plan.ApplyTerraform5AttributePathStep(tftypes.AttributeName(s))
		case path.PathStepElementKeyInt:
			next, err = plan.ApplyTerraform5AttributePathStep(tftypes.ElementKeyInt(s))
		case path.PathStepElementKeyString:
			next, err = plan.ApplyTerraform5AttributePathStep(tftypes.ElementKeyString(s))
		}
		inner, ok := next.(tftypes.Value)
		if err != nil || !ok { // the plan omits the field
			return true
		}
		plan = inner
	}
	return plan.IsFullyKnown()
}
