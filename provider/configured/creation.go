package configured

import (
	"context"

	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/journal"
)

// Begin returns the owner to create an object with: the one of an earlier Create that no state is known of (resumed),
// or a fresh one. Where the journal cannot be kept, every Create has a fresh owner.
func (p *Provider) Begin(ctx context.Context, o journal.Object) (owner string, resumed bool) {
	owner, resumed, err := p.Journal.Begin(o, p.NewOwner())
	warn(ctx, o, err)
	return owner, resumed
}

// Held says that a state holds the object with this owner, or that the object is gone.
func (p *Provider) Held(ctx context.Context, o journal.Object, owner string) {
	warn(ctx, o, p.Journal.Held(o, owner))
}

func warn(ctx context.Context, o journal.Object, err error) {
	if err != nil {
		tflog.Warn(ctx, "an apply that is killed now may leave objects that the next apply does not find",
			map[string]any{"kind": o.Kind, "id": o.ID, "error": err.Error()})
	}
}
