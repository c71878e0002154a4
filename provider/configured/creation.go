package configured

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/journal"
)

// Begin returns the owner for a new object. If an earlier Create of the object is in no known state, Begin returns that
// Create's owner, and resumed is true. Otherwise, or if the journal fails, the owner is fresh. The first failure of a
// run is a warning.
func (p *Provider) Begin(o journal.Object) (owner string, resumed bool, diags diag.Diagnostics) {
	owner, resumed, err := p.Journal.Begin(o, p.NewOwner())
	if err != nil && p.TellOnce("journal", "") {
		diags.AddWarning("Creations Are Not Recorded", err.Error()+".\n\nIf Terraform is killed during this apply, the next "+
			"apply may not find what was created, and a destroy may leave it. Make the directory writable, or have TF_DATA_DIR "+
			"name one that is.")
	}
	return owner, resumed, diags
}

// Held records that a state holds the object with this owner, or that the object is gone.
func (p *Provider) Held(ctx context.Context, o journal.Object, owner string) {
	if err := p.Journal.Held(o, owner); err != nil { // the next Create of the object finds that it is known
		tflog.Warn(ctx, "the journal keeps the owner of an object that a state holds",
			map[string]any{"kind": o.Kind, "id": o.ID, "error": err.Error()})
	}
}
