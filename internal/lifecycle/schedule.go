package lifecycle

import (
	"context"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// What the reconciliation loop needs beside Work, Look and Resync.

// Backends returns the kinds of backends that this core drives.
func (c *Core) Backends() []sandbox.Backend {
	bs := make([]sandbox.Backend, 0, len(c.backends))
	for b := range c.backends {
		bs = append(bs, b)
	}
	return bs
}

// Changed returns a channel that is closed at the ledger's next commit, and Scheduled one that is closed at the next
// after which a sandbox may be due earlier.
func (c *Core) Changed() <-chan struct{}   { return c.store.Changed() }
func (c *Core) Scheduled() <-chan struct{} { return c.store.Scheduled() }

// Now is the ledger's clock, by which Due tells when. It need not be the host's.
func (c *Core) Now() time.Time { return c.now() }

// Due returns up to limit sandboxes of a backend that are due, and when the next one will be that is not due yet (the
// zero time: none). A backend that is not connected has none.
func (c *Core) Due(ctx context.Context, b sandbox.Backend, limit int) (ids []string, next time.Time, err error) {
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

// Watch connects to a backend and calls changed for each of the ledger's sandboxes that changes
// there, until ctx ends or the connection breaks; then the backend is out of reach. Once the
// connection stands, what had failed is due at once, and ready is called.
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

// Ready reports whether the ledger can be read and written, for health checks: a disk that is full, or a standby, can
// be read still. Backends do not count. If one is away, requests must still be sent here: conditions
// are stored, leases renewed, and what is due is done once it is back.
func (c *Core) Ready(ctx context.Context) error {
	return c.store.Ready(ctx)
}

// Reachable says of each backend whether it is connected. It waits for nothing.
func (c *Core) Reachable() map[sandbox.Backend]bool {
	reachable := make(map[sandbox.Backend]bool, len(c.backends))
	for name, b := range c.backends {
		reachable[name] = b.Connected() != ""
	}
	return reachable
}
