package lifecycle

import (
	"context"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// What the reconciliation loop needs besides Work, Look and Resync.

// Backends returns the kinds of backends that this core drives.
func (c *Core) Backends() []sandbox.Backend {
	bs := make([]sandbox.Backend, 0, len(c.backends))
	for b := range c.backends {
		bs = append(bs, b)
	}
	return bs
}

// Changed returns a channel that the ledger's next commit closes. Scheduled returns one that is closed by the next
// commit after which a sandbox may be due earlier.
func (c *Core) Changed() <-chan struct{}   { return c.store.Changed() }
func (c *Core) Scheduled() <-chan struct{} { return c.store.Scheduled() }

// Now is the ledger's clock, which ListDue uses. It may differ from the host's clock.
func (c *Core) Now() time.Time { return c.now() }

// ListDue returns up to limit due sandboxes of a backend, and when the next one is due (zero time: none). A backend
// that is not connected has none.
func (c *Core) ListDue(ctx context.Context, b sandbox.Backend, limit int) (ids []string, next time.Time, err error) {
	x, err := c.BackendFor(b)
	if err != nil {
		return nil, time.Time{}, err
	}
	instance := x.Connected()
	if instance == "" {
		return nil, time.Time{}, nil
	}
	err = c.store.Read(ctx, func(tx *ledger.Tx) error {
		at, err := tx.NextDue(instance)
		if err == nil && at <= tx.Now {
			if ids, err = tx.DueSandboxes(instance, limit); err == nil {
				at, err = tx.DueAfter(instance, tx.Now)
			}
		}
		if err == nil && at != micro.Never {
			next = at.Time()
		}
		return err
	})
	return ids, next, err
}

// Watch connects to a backend and calls changed for each of the ledger's sandboxes that changes there. It returns when
// ctx ends or the connection breaks; then the backend is out of reach. Once the connection is established, it makes
// failed steps due at once and calls ready.
func (c *Core) Watch(ctx context.Context, b sandbox.Backend, ready func(), changed func(sandboxID string)) error {
	x, err := c.BackendFor(b)
	if err != nil {
		return err
	}
	x.forget()
	instance, err := x.Reach(ctx)
	if err != nil {
		return err
	}
	defer x.forget()
	return x.Watch(ctx, c.store.ID(), func() {
		x.watched(micro.At(c.now()))
		if err := c.retryNow(ctx, instance); err != nil {
			c.log.Error("lifecycle: retrying what failed while the backend was away", "backend", b, "error", err)
		}
		ready()
	}, changed)
}

// retryNow makes the sandboxes of an instance due whose last step failed.
func (c *Core) retryNow(ctx context.Context, instance string) error {
	return c.store.Write(ctx, func(tx *ledger.Tx) error { return tx.RetryFailed(instance) })
}

// Ready reports whether the ledger can be read and written, for health checks. A read is not enough, because a full
// disk or a standby can still be read. Backends do not count. While one is away, requests must still arrive here:
// conditions are stored, leases are renewed, and due steps run once it is back.
func (c *Core) Ready(ctx context.Context) error {
	return c.store.Ready(ctx)
}

// Reachable reports for each backend whether it is connected. It does not wait.
func (c *Core) Reachable() map[sandbox.Backend]bool {
	reachable := make(map[sandbox.Backend]bool, len(c.backends))
	for name, b := range c.backends {
		reachable[name] = b.Connected() != ""
	}
	return reachable
}
