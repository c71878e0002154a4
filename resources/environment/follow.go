package environment

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// maxNamed is how many leases a warning names.
const maxNamed = 20

// planImage says which living leases keep their image when the environment's changes. It says so each
// time that Terraform plans the change, at an apply twice.
func (r *Resource) planImage(ctx context.Context, plan, state *Model) diag.Diagnostics {
	if state == nil || r.Provider == nil || plan.Image.Equal(state.Image) || !plan.Name.Equal(state.Name) {
		return nil
	}
	living, more, err := r.living(ctx, state)
	if err != nil {
		return diag.Diagnostics{diag.NewAttributeWarningDiagnostic(path.Root("image"),
			fmt.Sprintf("Leases Of Environment %s Are Not Known", state.ID.ValueString()),
			fmt.Sprintf("The image changes, and which living leases keep the old one could not be read: %s.", err))}
	}
	is := plan.Image.ValueString()
	if plan.Image.IsUnknown() {
		is = "one that is known after apply"
	}
	var keep []string
	for _, l := range living {
		if l.Image != is {
			keep = append(keep, fmt.Sprintf("  - %s (generation %d, on %s)", l.ID, l.Generation, l.Image))
		}
	}
	if len(keep) == 0 {
		return nil
	}
	if more || len(keep) > maxNamed {
		keep = append(keep[:min(len(keep), maxNamed)], "  - and more, see the data source sandbox_leases")
	}
	return diag.Diagnostics{
		diag.NewAttributeWarningDiagnostic(path.Root("image"), fmt.Sprintf("Leases Of Environment %s Keep Their Image",
			state.ID.ValueString()), fmt.Sprintf("The image of environment %s becomes %s. These leases run on and keep the "+
			"image that they began with; each follows with its next generation, once it has ended and is leased again, "+
			"for example by terraform apply -replace:\n\n%s", state.ID.ValueString(), is, strings.Join(keep, "\n"))),
	}
}

// living returns living leases of the environment, and whether there are more.
func (r *Resource) living(ctx context.Context, state *Model) (living []sandbox.Lease, more bool, err error) {
	svc, err := r.Provider.OpenLedger(ctx, state.LedgerID.ValueString())
	if err != nil {
		return nil, false, err
	}
	living, err = svc.ListLeases(ctx,
		sandbox.LeaseFilter{EnvironmentID: state.ID.ValueString(), Status: sandbox.LeaseActive, Limit: sandbox.MaxPage})
	return living, len(living) == sandbox.MaxPage, err
}
