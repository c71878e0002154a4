package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// outcome is what a step found.
type outcome struct {
	err error
	// since is when the sandbox began to run, if the step did not start it.
	since time.Time
	usage
	runtimeHistory
	// attested is the witness's number that its instance has, 0 if it has none.
	attested int64
	// started: a wake started the sandbox, which had stopped, also if the step failed afterwards.
	started bool
	// rest is set if the backend had put the sandbox to sleep.
	rest *driver.Observation
	// settles record the results of the hooks' fills.
	settles []Settle
	// failed records that a hook's step failed, nil for a step of the core.
	failed Settle
	// disk says what became of the sandbox's disk, nil if it does not outlive a sleep.
	disk *sandbox.KeptDisk
	// frozen: nothing of the sandbox runs any more. stuck: it was frozen for a checkpoint and does not run again.
	frozen, stuck bool
}

// act carries out the action of a step on its backend.
func (c *Core) act(ctx context.Context, t *Task) outcome {
	left := c.backends[t.Row.Backend].attest(ctx, t)
	var out outcome
	switch t.Action {
	case Spawn:
		out = c.spawn(ctx, t)
	case Assign:
		out = c.assign(ctx, t)
	case Sleep:
		out = c.sleep(ctx, t)
	case Halt:
		out = halt(ctx, t)
	case Wake, Thaw:
		out = c.wake(ctx, t)
	case Renew:
		out = renew(ctx, t)
	case Kill:
		out = c.kill(ctx, t)
	default:
		if done, isOwn := c.hooks.Act(ctx, &t.Step); isOwn {
			out = outcomeOf(done)
		} else { // the hook only proposes the step, which fills the sandbox
			out.settles, out.err = c.fillAgain(ctx, t)
		}
	}
	out.attest(<-left)
	return readHistory(ctx, t, out)
}

// outcomeOf returns the outcome of a hook's own step.
func outcomeOf(done Done) outcome {
	return outcome{
		err:     done.Err,
		settles: []Settle{done.Settle},
		failed:  done.Failed,
		usage:   usage{reading: done.Usage, sampled: done.Sampled},
		frozen:  done.Frozen,
		stuck:   done.Stuck,
	}
}

// attest adds the number that was left on the instance. Without it the sandbox is unusable.
func (out *outcome) attest(a attestation) {
	if a.err == nil {
		out.attested = a.number
	} else if out.err == nil {
		out.err = a.err
	}
}

// A sandbox sleeps and wakes in place. A step that does so ends early when the lease ends.
//
// On a backend where a sandbox that stops loses its disk (no driver.Capabilities.Disk), the environment may want the
// disk to outlive a sleep. The backend then reports what became of it, and events of the sandbox record that.

// sleep puts a sandbox to sleep.
func (c *Core) sleep(ctx context.Context, t *Task) (out outcome) {
	out.usage = c.Sampler.sample(ctx, t.On, t.Handle, &t.Row)
	ctx, stop := c.resting(ctx, t)
	defer stop()
	out.err = t.On.Sleep(ctx, t.Handle, t.Row.SleepMode)
	out = seeDisk(ctx, t, out)
	out.err = unlessEnded(ctx, out.err)
	return out
}

// halt stops a failed sandbox that is kept.
func halt(ctx context.Context, t *Task) outcome {
	ctx, cancel := context.WithTimeout(ctx, restTimeout)
	defer cancel()
	return outcome{err: t.On.Sleep(ctx, t.Handle, sandbox.SleepStop)}
}

// wake wakes a sandbox and fills it again.
func (c *Core) wake(ctx context.Context, t *Task) (out outcome) {
	ctx, stop := c.resting(ctx, t)
	defer stop()
	out.started, out.err = t.On.Wake(ctx, t.Handle)
	if out = seeDisk(ctx, t, out); out.err == nil {
		out.settles, out.err = c.fillAgain(ctx, t)
	}
	out.err = unlessEnded(ctx, out.err)
	return out
}

// resting returns the context of a step that puts a sandbox to sleep or wakes it. It ends early when the lease ends: a
// sandbox that is to be gone does not first save its disk, or start. The returned function ends it too.
func (c *Core) resting(ctx context.Context, t *Task) (context.Context, func()) {
	limit := restTimeout
	if !t.On.Capabilities().Disk {
		limit = copyTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	if t.Last() {
		return ctx, cancel
	}
	ctx, stop := c.whileWanted(ctx, t.Row.ID, watchAfter, errEnded)
	return ctx, func() { stop(); cancel() }
}

var errEnded = sandbox.Errorf(sandbox.LeaseEnded, "the lease has ended meanwhile: acquire it again")

// unlessEnded returns the error of a step, or errEnded if that is why it failed.
func unlessEnded(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errEnded) {
		return errEnded
	}
	return err
}

// WhileWanted returns a context, part of ctx, that ends with the cause when a sandbox is to be gone: a caller that ends
// a lease does not wait for what makes it ready. A nil cause is context.Canceled. The function that it returns ends it
// too.
func (c *Core) WhileWanted(ctx context.Context, sandboxID string, cause error) (context.Context, func()) {
	return c.whileWanted(ctx, sandboxID, 0, cause)
}

// whileWanted is WhileWanted that looks at the sandbox only after a while: what is over by then costs no reads.
func (c *Core) whileWanted(ctx context.Context, sandboxID string, after time.Duration,
	cause error) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if after > 0 && c.Pause(ctx, nil, micro.At(c.now().Add(after))) != nil { // ctx or the service has ended
			return
		}
		for {
			changed := c.store.Changed()
			var isWanted bool
			err := c.store.Read(ctx, func(tx *ledger.Tx) (err error) {
				isWanted, err = tx.IsWanted(sandboxID)
				return err
			})
			if err == nil && !isWanted {
				cancel(cause)
				return
			}
			if c.Pause(ctx, changed, micro.At(c.store.Now().Add(ClaimTTL))) != nil { // ctx or the service has ended
				return
			}
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}

// seeDisk asks what became of the disk of a sandbox that has just been put to sleep or woken. If the backend does not
// answer, the step is repeated.
func seeDisk(ctx context.Context, t *Task, out outcome) outcome {
	if out.err != nil || !t.On.Capabilities().KeepsDisk {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	obs, err := t.On.Inspect(ctx, t.Handle)
	out.err, out.disk = err, obs.Disk
	return out
}

// renew reports a use of a sandbox to the backend, and finds out whether the sandbox sleeps.
func renew(ctx context.Context, t *Task) (out outcome) {
	if !t.On.Capabilities().KeepsTime {
		return outcome{}
	}
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	obs, err := t.On.Touch(ctx, t.Handle, t.Row.Terms.Limits())
	if err == nil && rests(&t.Row, obs) {
		out.rest = &obs
	}
	out.err = err
	return out
}

// kill removes a sandbox, and finds out until when it was there. A backend that records that tells it afterwards.
// Another one is asked before, and again where the removal failed.
func (c *Core) kill(ctx context.Context, t *Task) (out outcome) {
	if err := c.hooks.Leaving(ctx, &t.Step); err != nil {
		return outcome{err: err}
	}
	bounded, cancel := context.WithTimeout(ctx, KillTimeout)
	defer cancel()
	isAsked := !t.On.Capabilities().Records && t.Row.Phase != sandbox.PhasePending
	var unknown error
	if isAsked {
		out.runtimeHistory, unknown = historyOf(bounded, t.On, t.Handle)
	}
	sampled := c.Sampler.lastSample(bounded, t)
	out.err = t.On.Kill(bounded, t.Handle)
	out.usage = sampled()
	switch {
	case !isAsked:
	case out.err == nil && unknown != nil: // whether it has removed anything is not known
		out.err = errUnknownHistory(unknown)
	case out.err != nil && unknown == nil && !out.absent: // it may have removed the sandbox, and not all that it had
		if after, err := historyOf(ctx, t.On, t.Handle); err == nil && after.absent {
			out.runtimeHistory = after.following(out.runtimeHistory, c.now())
		}
	}
	return out
}

// following completes the history of a sandbox that was removed, by the one that was read before.
func (l runtimeHistory) following(before runtimeHistory, now time.Time) runtimeHistory {
	if l.removedAt.IsZero() {
		l.removedAt = now
	}
	if len(l.ran) == 0 {
		l.ran = before.ran
	}
	return l
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

// until returns the last known moment at which a sandbox existed.
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
