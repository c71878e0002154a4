package environment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/journal"
)

// planDestroy refuses a destroy that would fail because of leases that the plan does not release. Otherwise Terraform
// would destroy the configuration's own leases before it fails. terraform destroy does not refresh in the run that
// plans, and plans the leases that refer to the environment first. Every other lease then belongs to someone else. A
// plan that reads the environment plans it before its leases, so it may still release any lease whose owner is a
// Terraform object.
func (r *Resource) planDestroy(ctx context.Context, state *Model) diag.Diagnostics {
	if r.Provider == nil || state.ForceDestroy.ValueBool() {
		return nil
	}
	id := state.ID.ValueString()
	living, err := r.living(ctx, state)
	lost, unread := r.Provider.Journal.Lost(state.LedgerID.ValueString(), id)
	if err = errors.Join(err, unread); err != nil {
		return diag.Diagnostics{diag.NewWarningDiagnostic(fmt.Sprintf("Leases Of Environment %s Are Not Known", id),
			fmt.Sprintf("Whether leases of other owners make the destroy of environment %s fail could not be read: %s.",
				id, err))}
	}
	var others []string
	_, read := r.Provider.Read(id)
	planned := !read && slices.ContainsFunc(living, r.Provider.PlansRelease)
	for _, l := range living {
		killed := slices.ContainsFunc(lost, func(e journal.Entry) bool { return e.ID == l.ID && e.Owner == l.Owner })
		ours := r.Provider.PlansRelease(l) || r.Provider.IsChanged(l.ID) || killed
		if !ours && (planned || !strings.HasPrefix(l.Owner, configured.OwnerPrefix)) {
			others = append(others, fmt.Sprintf("  - %s of %s", l.ID, l.Owner))
		}
	}
	if len(others) == 0 {
		return nil
	}
	return diag.Diagnostics{diag.NewErrorDiagnostic("Destroying Environment Would Fail", fmt.Sprintf(
		"Other owners hold leases in environment %s:\n\n%s\n\nNothing was destroyed. End these leases, or set "+
			"force_destroy = true and apply before destroying. Leases of this configuration end first if their "+
			"environment_id refers to this resource.", id, strings.Join(firstNamed(others), "\n")))}
}
