package lifecycle

import (
	"context"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// What a sandbox has used is known by samples of its CPU time and by when it ran. A sample that a stop would lose is
// taken before.
//
// A backend that records when its sandboxes ran (driver.Capabilities.Records) is what usage is counted by: a
// sandbox was awake from the start to the stop that were recorded, also while reconcilers were away, and however late a
// step was settled. What the ledger has counted of them is known by the number of the last one that it has
// begun. A record that cannot be read leaves a step undone, which is then taken again.
//
// Another backend is asked before a sandbox is removed: whether it is there, or when it stopped or was removed. Where
// nothing is known of one that is not there, its usage ends when it was last seen.

// sampleTimeout limits a reading of usage.
const sampleTimeout = 2 * time.Second

// Sample reads a sandbox's usage.
func Sample(ctx context.Context, x driver.Executor, h driver.Handle) (driver.Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	return x.Usage(ctx, h)
}

// usage is a reading of what a sandbox has used.
type usage struct {
	reading driver.Usage
	// sampled: there is a reading. companions are those of its companions that could be read.
	sampled    bool
	companions map[string]accounting.CompanionReading
}

// sample reads what a sandbox and its companions have used before that is lost. Failing to is not an error: the last
// heartbeat's reading then stands.
func (c *Core) sample(ctx context.Context, x driver.Executor, h driver.Handle, s *ledger.Sandbox) usage {
	var (
		reading    sync.WaitGroup
		mu         sync.Mutex // guards companions
		companions = make(map[string]accounting.CompanionReading)
	)
	for name, is := range s.CompanionStates {
		if is.Measured() {
			reading.Go(func() {
				u, err := Sample(ctx, x, h.Of(name))
				if err != nil {
					return // the next reading counts
				}
				mu.Lock()
				defer mu.Unlock()
				companions[name] = accounting.CompanionReading{CPU: micro.SpanOf(u.CPUTime), Since: is.Since}
			})
		}
	}
	u, err := Sample(ctx, x, h)
	reading.Wait()
	if err != nil {
		c.log.DebugContext(ctx, "lifecycle: sampling usage", "environment", h.EnvironmentID,
			"sandbox", h.SandboxID, "error", err)
		return usage{}
	}
	return usage{reading: u, sampled: true, companions: companions}
}

// lastSamples bounds the last readings of CPU time that are taken at once. While a whole game ends, more
// of them would hold up what they stand beside.
const lastSamples = 4

// lastSample begins a last reading of CPU time beside the call that ends a sandbox. The returned function ends the
// reading and returns it. The call does not wait for it: an engine may take a second to answer, and the reading of the
// last command or heartbeat then stands, as it does where many sandboxes end at once.
func (c *Core) lastSample(ctx context.Context, t *Task) func() usage {
	none := func() usage { return usage{} }
	if t.Row.Phase != sandbox.PhaseAwake {
		return none
	}
	select {
	case c.lastSamples <- struct{}{}:
	default:
		return none
	}
	ctx, stop := context.WithCancel(ctx)
	reading := make(chan usage, 1)
	go func() { reading <- c.sample(ctx, t.On, t.Handle, &t.Row) }()
	return func() usage {
		defer func() { <-c.lastSamples }()
		stop()
		return <-reading
	}
}

// runtimeHistory is what a backend knows of when a sandbox ran and was there.
type runtimeHistory struct {
	ran []driver.Boot
	// absent: the backend does not have the sandbox, since removedAt, which is zero where that is not known.
	absent    bool
	removedAt time.Time
}

func historyOf(ctx context.Context, x driver.Executor, h driver.Handle) (runtimeHistory, error) {
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	ran, err := x.Boots(ctx, h)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return runtimeHistory{absent: true}, nil
	}
	l := runtimeHistory{ran: ran}
	if err == nil && len(ran) > 0 {
		l.removedAt = ran[len(ran)-1].RemovedAt
		l.absent = !l.removedAt.IsZero()
	}
	return l, err
}

// until returns the last moment at which a sandbox was there, as far as is known.
func (l runtimeHistory) until(s *ledger.Sandbox, now micro.Time) micro.Time {
	switch {
	case !l.absent:
		return now
	case l.removedAt.IsZero():
		return max(s.ObservedAt, s.ReadyAt)
	default:
		return min(now, micro.At(l.removedAt))
	}
}

// readHistory reads when the sandbox of a step ran, once that step is taken, or found nothing to take. Of one that
// cannot be killed it is read too: it may have stopped long before.
func readHistory(ctx context.Context, t *Task, out outcome) outcome {
	switch {
	case out.err == nil && !t.Action.Runs() && out.rest == nil: // it goes on
		return out
	case out.err != nil && sandbox.CodeOf(out.err) != sandbox.NotFound && t.Action != Kill:
		return out
	}
	if !t.On.Capabilities().Records && (t.Action == Kill || sandbox.CodeOf(out.err) != sandbox.NotFound) {
		return out // kill has asked
	}
	l, err := historyOf(ctx, t.On, t.Handle)
	if err != nil && out.err == nil {
		out.err = errUnknownHistory(err)
	}
	if len(l.ran) > 0 {
		out.sampled = false // it tells more than a sample
	}
	out.runtimeHistory = l
	return out
}

func errUnknownHistory(err error) error {
	return sandbox.Errorf(sandbox.Unavailable, "read when it ran: %w", err)
}

// followHistory counts what a sandbox is recorded to have run and was not counted before.
func (c *Core) followHistory(tx *ledger.Tx, s *ledger.Sandbox, ran []driver.Boot) error {
	for _, i := range ran {
		if i.Number < s.Meter.Boot {
			continue
		}
		if err := c.followIncarnation(tx, s, i); err != nil {
			return err
		}
	}
	return nil
}

func (c *Core) followIncarnation(tx *ledger.Tx, s *ledger.Sandbox, i driver.Boot) error {
	if s.Meter.Begins(i) {
		counted, err := accounting.In(tx).LastUsed(s.ID)
		if err != nil {
			return err
		}
		at := max(micro.At(i.StartedAt), s.LeasedAt, counted)
		if err := c.count(tx, s, sandbox.PhaseAwake, at); err != nil {
			return err
		}
	}
	open, err := accounting.In(tx).OpenPeriod(s.ID)
	if err != nil || open == nil || open.State != sandbox.PhaseAwake {
		return err // it is paused, or was counted to its end
	}
	if cpu := micro.SpanOf(i.CPUTime); cpu > s.Meter.CPUMark {
		if err := accounting.In(tx).AddCPU(s, cpu); err != nil {
			return err
		}
	}
	if i.StoppedAt.IsZero() {
		return nil
	}
	return c.count(tx, s, sandbox.PhaseAsleep, micro.At(i.StoppedAt))
}

// count begins another stretch of a sandbox's usage.
func (c *Core) count(tx *ledger.Tx, s *ledger.Sandbox, p sandbox.Phase, at micro.Time) error {
	var book *accounting.PriceBook // what is gone costs nothing more
	if p != sandbox.PhaseGone {
		var err error
		if book, err = accounting.In(tx).KeepPriceBook(s.Backend, c.books[s.Backend]); err != nil {
			return err
		}
	}
	return accounting.In(tx).EnterState(s, p, at, book)
}
