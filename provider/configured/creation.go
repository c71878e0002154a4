package configured

import (
	"context"

	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/journal"
)

// Begin returns the owner for a new object. If an earlier Create of the object is in no known state, Begin returns that
// Create's owner, and resumed is true. Otherwise, or if the journal fails, the owner is fresh.
func (p *Provider) Begin(ctx context.Context, o journal.Object) (owner string, resumed bool) {
	owner, resumed, err := p.Journal.Begin(o, p.NewOwner())
	warn(ctx, o, err)
	return owner, resumed
}

// Held records that a state holds the object with this owner, or that the object is gone.
func (p *Provider) Held(ctx context.Context, o journal.Object, owner string) {
	warn(ctx, o, p.Journal.Held(o, owner))
}

func warn(ctx context.Context, o journal.Object, err error) {
	if err != nil {
		tflog.Warn(ctx, "an apply that is killed now may leave objects that the next apply does not find",
			map[string]any{"kind": o.Kind, "id": o.ID, "error": err.Error()})
	}
}
