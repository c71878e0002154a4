package leasing

import (
	"context"
	"errors"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// maxBatch bounds the deliveries of one write, so that the first does not wait for a whole burst.
	maxBatch = 256
	// maxGather bounds how long a batch waits for deliveries that are expected.
	maxGather = 5 * time.Millisecond
	// maxRaces bounds how often a batch is tried again because another process stored one of its deliveries.
	maxRaces = 5
	// batchTimeout bounds how long a batch waits for its turn to be written.
	batchTimeout = 10 * time.Second
)

// errRaced rolls back a batch when another process stored one of its deliveries meanwhile.
var errRaced = errors.New("a delivery of the batch was stored meanwhile")

// Deliver implements service.Conditions: one transaction stores the delivery, the events, and
// which leases end; the loop removes their sandboxes.
func (e *Service) Deliver(ctx context.Context, d sandbox.Delivery) (sandbox.Receipt, error) {
	if err := d.Condition.Validate(); err != nil {
		return sandbox.Receipt{}, err
	}
	return e.receipts.deliver(ctx, d)
}

// receipts stores the deliveries that arrive while others are stored together: statements cost more
// than what they carry. One that comes alone does not wait.
type receipts struct {
	service  *Service
	arrivals chan *arrival // unbuffered: what was taken from it is answered
}

// arrival is a delivery whose sender waits.
type arrival struct {
	ctx      context.Context
	delivery sandbox.Delivery
	receipt  sandbox.Receipt
	err      error
	done     chan struct{}
}

// deliver hands a delivery over and awaits its outcome, also past ctx: once begun, it must be known.
func (r *receipts) deliver(ctx context.Context, d sandbox.Delivery) (sandbox.Receipt, error) {
	a := &arrival{ctx: ctx, delivery: d, done: make(chan struct{})}
	select {
	case r.arrivals <- a:
	case <-ctx.Done():
		return sandbox.Receipt{}, sandbox.Errorf(sandbox.Unavailable, "message %q was not stored: %w", d.ID, ctx.Err())
	case <-r.service.Life().Done():
		return sandbox.Receipt{}, sandbox.Errorf(sandbox.Unavailable,
			"message %q was not stored: the lease service is closing", d.ID)
	}
	<-a.done
	return a.receipt, a.err
}

// run stores deliveries until the service ends.
func (r *receipts) run() {
	var (
		answered []*arrival    // by the last write; their senders may send again at once
		took     time.Duration // by the last write
	)
	for {
		arrivals := r.waiting()
		expected := len(arrivals) + len(answered)
		for _, a := range answered {
			close(a.done)
		}
		if len(arrivals) == 0 {
			select {
			case <-r.service.Life().Done():
				return
			case a := <-r.arrivals:
				arrivals = append(arrivals, a)
			}
		}
		arrivals = r.gather(arrivals, min(expected, maxBatch), min(took/4, maxGather))
		began := time.Now()
		r.store(arrivals)
		answered, took = arrivals, time.Since(began)
	}
}

// waiting returns the deliveries that wait already.
func (r *receipts) waiting() (arrivals []*arrival) {
	for len(arrivals) < maxBatch {
		select {
		case a := <-r.arrivals:
			arrivals = append(arrivals, a)
		default:
			return arrivals
		}
	}
	return arrivals
}

// gather adds deliveries until there are as many as expected: those that came during the last write, and one from each
// sender that it has answered. Without it, senders fall into two groups that wait for each other's writes. It ends
// after a part of the time that a write takes. A sender that is alone waits for no other.
func (r *receipts) gather(arrivals []*arrival, expected int, limit time.Duration) []*arrival {
	if len(arrivals) >= expected {
		return arrivals
	}
	late := time.NewTimer(limit)
	defer late.Stop()
	for len(arrivals) < expected {
		select {
		case a := <-r.arrivals:
			arrivals = append(arrivals, a)
		case <-late.C:
			return arrivals
		}
	}
	return arrivals
}

// store writes deliveries together. When that fails by a fault of one of them, each is written alone.
func (r *receipts) store(arrivals []*arrival) {
	wanted := make([]*arrival, 0, len(arrivals))
	for _, a := range arrivals {
		if err := a.ctx.Err(); err != nil {
			a.err = sandbox.Errorf(sandbox.Unavailable, "message %q was not stored: %w", a.delivery.ID, err)
			continue
		}
		wanted = append(wanted, a)
	}
	if len(wanted) == 0 {
		return
	}
	err := r.write(wanted)
	switch {
	case err == nil:
	case len(wanted) > 1 && sandbox.CodeOf(err) != sandbox.Unavailable:
		for _, a := range wanted {
			r.store([]*arrival{a})
		}
	default:
		for _, a := range wanted {
			a.receipt, a.err = sandbox.Receipt{}, err
		}
	}
}

// write stores deliveries in one transaction.
func (r *receipts) write(arrivals []*arrival) error {
	deliveries := make([]sandbox.Delivery, len(arrivals))
	for i, a := range arrivals {
		deliveries[i] = a.delivery
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.service.Life()), batchTimeout)
	defer cancel()
	var err error
	for range maxRaces {
		err = r.service.store.Write(ctx, func(tx *ledger.Tx) error {
			b := batch{service: r.service, tx: tx, changed: make(map[string]bool)}
			if err := b.read(deliveries); err != nil {
				return err
			}
			for i, a := range arrivals {
				tx.ActFor(sandbox.ActorOf(a.ctx))
				a.receipt, a.err = b.deliver(deliveries[i])
				switch sandbox.CodeOf(a.err) {
				case "", sandbox.Conflict, sandbox.Invalid: // refused for itself
				default:
					return a.err // it may have changed a part of what it should
				}
			}
			return b.save()
		})
		if !errors.Is(err, errRaced) {
			return err
		}
	}
	return sandbox.Errorf(sandbox.Unavailable,
		"storing %d messages: others stored the same ones at the same time, %d times in a row: %w; send them again",
		len(arrivals), maxRaces, err)
}
