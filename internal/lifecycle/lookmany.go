package lifecycle

import (
	"context"
	"errors"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/parallel"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// listedFrom is the number of sandboxes from which one list of the backend replaces a call for each.
const listedFrom = 5

// LookAtMany looks at sandboxes of one backend, as Look does at each: by one list of the backend if there are many.
// drifted names those with open findings. Errors: as Look.
func (c *Core) LookAtMany(ctx context.Context, b sandbox.Backend, rows []ledger.Sandbox,
	drifted map[string]bool) error {
	look, err := c.lookerAt(ctx, b, len(rows), drifted)
	if err != nil {
		return err
	}
	return parallel.Each(samplers, rows, func(s *ledger.Sandbox) error { return look(ctx, s) })
}

// lookerAt returns what looks at each of n sandboxes of a backend.
func (c *Core) lookerAt(ctx context.Context, b sandbox.Backend, n int,
	drifted map[string]bool) (func(context.Context, *ledger.Sandbox) error, error) {
	each := func(ctx context.Context, s *ledger.Sandbox) error {
		_, err := c.look(ctx, s)
		return err
	}
	if n < listedFrom {
		return each, nil
	}
	x, err := c.BackendFor(b)
	if err != nil {
		return nil, err
	}
	instance, err := x.Reach(ctx)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, KillTimeout)
	defer cancel()
	if err := x.Recognize(bounded, instance); err != nil {
		return nil, err
	}
	listed, err := x.List(bounded, c.store.ID())
	var partial *sandbox.PartialError // each sandbox that the list misses gets a call of its own
	if err != nil && !errors.As(err, &partial) {
		return nil, err
	}
	v := &resync{core: c, x: x, listed: bySandbox(listed), drifted: drifted}
	return func(ctx context.Context, s *ledger.Sandbox) error {
		if s.Instance != instance {
			return each(ctx, s)
		}
		_, err := v.asListed(ctx, s)
		return err
	}, nil
}
