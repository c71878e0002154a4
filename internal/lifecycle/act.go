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

// outcome is the result of a step on the backend.
type outcome struct {
	err error
	// since is the time at which the sandbox began to run, if the step did not start it.
	since time.Time
	Used
	runtimeHistory
	// attested is the number of the witness on the sandbox's instance, 0 if it has none.
	attested int64
	// started: a wake started the sandbox, which had stopped. It is set even if the step failed afterwards.
	started bool
	// rest is set if the backend had put the sandbox to sleep.
	rest *driver.Observation
	// settles record the results of the hooks' fills.
	settles []Settle
	// failed records the failure of a hook's step; nil for a step of the core.
	failed Settle
	// disk describes the sandbox's disk after the step, nil if the disk does not outlive a sleep.
	disk *sandbox.KeptDisk
	// frozen: no process of the sandbox runs. stuck: a checkpoint froze the sandbox, and it could not be thawed.
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
	out := outcome{
		err:    done.Err,
		failed: done.Failed,
		Used:   done.Used,
		frozen: done.Frozen,
		stuck:  done.Stuck,
	}
	if done.Settle != nil {
		out.settles = []Settle{done.Settle}
	}
	return out
}

// attest adds the number that was left on the instance. Without that number the sandbox is unusable.
func (out *outcome) attest(a attestation) {
	if a.err == nil {
		out.attested = a.number
	} else if out.err == nil {
		out.err = a.err
	}
}

// A sandbox sleeps and wakes in place. The end of the lease cancels such a step.
//
// On some backends a stopped sandbox loses its disk (no driver.Capabilities.Disk). An environment may want the disk to
// outlive a sleep. The backend then reports what happened to the disk, and events of the sandbox record it.

// sleep puts a sandbox to sleep.
func (c *Core) sleep(ctx context.Context, t *Task) (out outcome) {
	out.Used = c.Sampler.Sample(ctx, &t.Step)
	ctx, stop := c.resting(ctx, t)
	defer stop()
	out.err = t.On.Sleep(ctx, t.Handle, t.Row.SleepMode)
	out = seeDisk(ctx, t, out)
	out.err = unlessEnded(ctx, out.err)
	return out
}

// halt stops a failed sandbox that is kept for a post-mortem.
func halt(ctx context.Context, t *Task) outcome {
	ctx, cancel := context.WithTimeout(ctx, restTimeout)
	defer cancel()
	return outcome{err: t.On.Sleep(ctx, t.Handle, sandbox.SleepStop)}
}

// StandStill stops all code of a sandbox that will be removed, and may take until ctx ends. It freezes the sandbox. If
// the backend refuses that, or has failed at it before, it stops the sandbox, which still has its disk.
func (c *Core) StandStill(ctx context.Context, t *Step) error {
	err := t.On.Sleep(ctx, t.Handle, sandbox.SleepPause)
	switch code := sandbox.CodeOf(err); {
	case err == nil, code == sandbox.NotFound, code != sandbox.Failed && t.Row.Schedule.Attempts == 0:
		return err
	}
	c.log.Warn("lifecycle: a sandbox that will be removed cannot be frozen, and is stopped instead", About(&t.Row),
		"error", err)
	return t.On.Sleep(ctx, t.Handle, sandbox.SleepStop)
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

// resting returns the context of a step that puts a sandbox to sleep or wakes it. The end of the lease cancels it: a
// sandbox that will be removed need not save its disk or start first. The returned function also cancels it.
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

var errEnded = sandbox.Errorf(sandbox.LeaseEnded,
	"the lease has ended meanwhile: acquire it again; in Terraform, plan again")

// unlessEnded returns errEnded if the end of the lease cancelled the step, or else the step's error.
func unlessEnded(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errEnded) {
		return errEnded
	}
	return err
}

// WhileWanted returns a context derived from ctx. It is cancelled with the cause once the sandbox is no longer wanted,
// so that a caller that ends a lease does not wait for its creation. A nil cause is context.Canceled. The returned
// function also cancels it.
func (c *Core) WhileWanted(ctx context.Context, sandboxID string, cause error) (context.Context, func()) {
	return c.whileWanted(ctx, sandboxID, 0, cause)
}

// whileWanted is WhileWanted, but first reads the sandbox after a delay. Work that ends earlier costs no reads.
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

// seeDisk asks for the disk of a sandbox that has just been put to sleep or woken. If the backend does not answer, the
// step is repeated.
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

// kill removes a sandbox, and finds out until when it existed. A backend that records this is asked after the removal.
// Other backends are asked before it, and again after a removal that fails.
func (c *Core) kill(ctx context.Context, t *Task) (out outcome) {
	if err := c.hooks.Leaving(ctx, &t.Step); err != nil {
		return outcome{err: err}
	}
	bounded, cancel := context.WithTimeout(ctx, KillTimeout)
	defer cancel()
	isAsked := !t.On.Capabilities().Records && (t.Row.Phase != sandbox.PhasePending || c.hooks.runsEarly(&t.Row))
	var unknown error
	if isAsked {
		out.runtimeHistory, unknown = historyOf(bounded, t.On, t.Handle)
	}
	sampled := c.Sampler.lastSample(bounded, t)
	out.err = t.On.Kill(bounded, t.Handle)
	out.Used = sampled()
	switch {
	case !isAsked:
	case out.err == nil && unknown != nil: // the sandbox may have been absent before the removal
		out.err = errUnknownHistory(unknown)
	case out.err != nil && unknown == nil && !out.absent: // it may have removed the sandbox but not its other objects
		if after, err := historyOf(ctx, t.On, t.Handle); err == nil && after.absent {
			out.runtimeHistory = after.following(out.runtimeHistory, c.now())
		}
	}
	return out
}

// following completes the history read after a removal with the one read before.
func (l runtimeHistory) following(before runtimeHistory, now time.Time) runtimeHistory {
	if l.removedAt.IsZero() {
		l.removedAt = now
	}
	if len(l.ran) == 0 {
		l.ran = before.ran
	}
	return l
}

// runtimeHistory is what a backend knows about when a sandbox ran and existed.
type runtimeHistory struct {
	ran []driver.Boot
	// absent: the backend does not have the sandbox. removedAt is the time of its removal, zero if unknown.
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

// readHistory reads when the sandbox of a step ran, if the step succeeded or did not find the sandbox. It also does so
// after a failed kill, because the sandbox may have stopped long before.
func readHistory(ctx context.Context, t *Task, out outcome) outcome {
	switch {
	case out.err == nil && !t.Action.Runs() && out.rest == nil: // the sandbox continues to run
		return out
	case out.err != nil && sandbox.CodeOf(out.err) != sandbox.NotFound && t.Action != Kill:
		return out
	}
	if !t.On.Capabilities().Records && (t.Action == Kill || sandbox.CodeOf(out.err) != sandbox.NotFound) {
		return out // kill has asked already
	}
	l, err := historyOf(ctx, t.On, t.Handle)
	if err != nil && out.err == nil {
		out.err = errUnknownHistory(err)
	}
	if len(l.ran) > 0 {
		out.sampled = false // the history is more exact than a sample
	}
	out.runtimeHistory = l
	return out
}

func errUnknownHistory(err error) error {
	return sandbox.Errorf(sandbox.Unavailable, "read when it ran: %w", err)
}
