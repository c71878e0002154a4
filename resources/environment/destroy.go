package environment

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
)

// planDestroy refuses a destroy that would fail because agents hold leases that no Terraform object made: by then
// Terraform would have destroyed the configuration's own. Leases of other Terraform states are found by the destroy.
func (r *Resource) planDestroy(ctx context.Context, state *Model) diag.Diagnostics {
	if r.Provider == nil || state.ForceDestroy.ValueBool() {
		return nil
	}
	id := state.ID.ValueString()
	living, more, err := r.living(ctx, state)
	if err != nil {
		return diag.Diagnostics{diag.NewWarningDiagnostic(fmt.Sprintf("Leases Of Environment %s Are Not Known", id),
			fmt.Sprintf("Whether leases of other owners make the destroy of environment %s fail could not be read: %s.",
				id, err))}
	}
	var others []string
	for _, l := range living {
		if !strings.HasPrefix(l.Owner, configured.OwnerPrefix) {
			others = append(others, fmt.Sprintf("  - %s of %s", l.ID, l.Owner))
		}
	}
	if len(others) == 0 {
		return nil
	}
	if more || len(others) > maxNamed {
		others = append(others[:min(len(others), maxNamed)], "  - and more, see the data source sandbox_leases")
	}
	return diag.Diagnostics{diag.NewErrorDiagnostic("Destroying Environment Would Fail", fmt.Sprintf(
		"Other owners hold leases in environment %s:\n\n%s\n\nNothing was destroyed. End these leases, or set "+
			"force_destroy = true and apply before destroying.", id, strings.Join(others, "\n")))}
}
