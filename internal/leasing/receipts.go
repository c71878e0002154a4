package leasing

import (
	"context"
	"errors"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// maxBatch limits the deliveries of one write, so that the first does not wait for a whole burst.
	maxBatch = 256
	// maxGather limits how long a batch waits for expected deliveries.
	maxGather = 5 * time.Millisecond
	// maxRaces limits the retries of a batch after another process stored one of its deliveries.
	maxRaces = 5
	// batchTimeout limits how long a batch waits for its turn to be written.
	batchTimeout = 10 * time.Second
)

// errRaced rolls back a batch if another process stored one of its deliveries meanwhile.
var errRaced = errors.New("a delivery of the batch was stored meanwhile")

// Deliver implements service.Conditions. One transaction stores the delivery, its events and the ends of leases. The
// loop removes their sandboxes.
func (v *Service) Deliver(ctx context.Context, d sandbox.Delivery) (sandbox.Receipt, error) {
	if err := d.Condition.Validate(); err != nil {
		return sandbox.Receipt{}, err
	}
	return v.receipts.deliver(ctx, d)
}

// receipts collects deliveries that arrive during a write, and stores them together, because statements cost more than
// their data. A single delivery does not wait.
type receipts struct {
	service  *Service
	arrivals chan *arrival // unbuffered: run answers every arrival that it receives
}

// arrival is a delivery with a waiting sender.
type arrival struct {
	ctx      context.Context
	delivery sandbox.Delivery
	receipt  sandbox.Receipt
	err      error
	done     chan struct{}
}

// deliver hands over a delivery and waits for its result, even after ctx has ended: once begun, the result must be
// known.
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
		answered []*arrival    // by the last write; their senders may send again immediately
		took     time.Duration // duration of the last write
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

// waiting returns the deliveries that already wait.
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

// gather adds deliveries until there are as many as expected: those that arrived during the last write, and one from
// each sender that it answered. Without it, senders would form two groups that wait for each other's writes. It ends
// after a fraction of the duration of a write. A single sender waits for no other.
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

// store writes deliveries together. If one of them makes the write fail, it writes each one alone.
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
				case "", sandbox.Conflict, sandbox.Invalid: // only this delivery is refused
				default:
					return a.err // it may have made a part of its changes
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
