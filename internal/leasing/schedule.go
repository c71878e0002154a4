package leasing

import (
	"context"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// What the reconciliation loop needs beside Work, Look and Survey.

// Backends returns the kinds of backends that this engine drives.
func (e *Engine) Backends() []sandbox.Backend {
	bs := make([]sandbox.Backend, 0, len(e.backends))
	for b := range e.backends {
		bs = append(bs, b)
	}
	return bs
}

// Changed returns a channel that is closed at the ledger's next commit.
func (e *Engine) Changed() <-chan struct{} { return e.store.Changed() }

// Now is the ledger's clock, by which Due tells when. It need not be the host's.
func (e *Engine) Now() time.Time { return e.now() }

// Due returns up to limit sandboxes of a backend that are due, and when the next one will be (the zero time:
// none). A backend that is not connected has none.
func (e *Engine) Due(ctx context.Context, b sandbox.Backend, limit int) (ids []string, next time.Time, err error) {
	x, err := e.backendFor(b)
	if err != nil {
		return nil, time.Time{}, err
	}
	instance := x.instance()
	if instance == "" {
		return nil, time.Time{}, nil
	}
	err = e.store.Read(ctx, func(tx *ledger.Tx) error {
		if ids, err = tx.DueSandboxes(instance, limit); err != nil {
			return err
		}
		at, err := tx.NextDue(instance)
		if at != ledger.Never {
			next = at.Time()
		}
		return err
	})
	return ids, next, err
}

// Watch connects to a backend and calls changed for each of the ledger's sandboxes that changes
// there, until ctx ends or the connection breaks; then the backend is out of reach. Once the
// connection stands, what had failed is due at once, and ready is called.
func (e *Engine) Watch(ctx context.Context, b sandbox.Backend, ready func(), changed func(sandboxID string)) error {
	x, err := e.backendFor(b)
	if err != nil {
		return err
	}
	x.forget()
	instance, err := x.reach(ctx)
	if err != nil {
		return err
	}
	defer x.forget()
	return x.Watch(ctx, e.store.ID(), func() {
		x.watched(ledger.At(e.now()))
		if err := e.retryNow(ctx, instance); err != nil {
			e.log.Error("leasing: retrying what failed while the backend was away", "backend", b, "error", err)
		}
		ready()
	}, changed)
}

// retryNow makes the sandboxes of an instance due whose last step failed.
func (e *Engine) retryNow(ctx context.Context, instance string) error {
	return e.store.Write(ctx, func(tx *ledger.Tx) error { return tx.RetryFailed(instance) })
}

// Ready reports whether the ledger can be read and written, for health checks: a disk that is full, or a standby, can
// be read still. Backends do not count. One that is away is no reason to stop sending requests here: conditions
// are stored, leases renewed, and what is due is done once it is back.
func (e *Engine) Ready(ctx context.Context) error {
	return e.store.Ready(ctx)
}
