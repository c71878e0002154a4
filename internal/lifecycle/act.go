package lifecycle

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// outcome is what a step found.
type outcome struct {
	err error
	// since is when the sandbox began to run, where the step did not start it itself.
	since   time.Time
	reading driver.Usage
	// sampled: there is a reading. companions are those of its companions that could be read.
	sampled    bool
	companions map[string]ledger.CompanionReading
	runtimeHistory
	// attested is the witness's number that its instance has, 0 where nothing was left.
	attested int64
	// started: a wake started the sandbox, which had stopped, also if the step failed afterwards.
	started bool
	// rest is a sandbox that was found to have been put to rest by its backend, nil where none was.
	rest *driver.Observation
	// settles records what hooks have filled the sandbox with.
	settles []Settle
	// failed records that a hook's step failed, nil for one of the engine's.
	failed Settle
	// disk says what became of the sandbox's disk, nil if it does not outlive a sleep.
	disk *sandbox.KeptDisk
	// frozen: nothing of the sandbox runs any more. stuck: it was frozen for a checkpoint and does not run again.
	frozen, stuck bool
}

// act does a step's one thing on the backend.
func (c *Core) act(ctx context.Context, t *Task) outcome {
	x, err := c.BackendFor(t.Row.Backend)
	if err != nil {
		return outcome{err: err}
	}
	t.On, t.Handle = x.Executor, c.handle(&t.Row)
	var out outcome
	switch t.Action {
	case Spawn:
		out = c.attested(ctx, x, t, func() outcome { return c.spawn(ctx, t) })
	case Assign:
		out = c.attested(ctx, x, t, func() outcome { return c.assign(ctx, t) })
	case Sleep:
		out = c.sample(ctx, t.On, t.Handle, &t.Row)
		ctx, stop := c.resting(ctx, t)
		defer stop()
		out.err = t.On.Sleep(ctx, t.Handle, t.Row.SleepMode)
		out = seeDisk(ctx, t, out)
		out.err = unlessEnded(ctx, out.err)
	case Halt:
		ctx, cancel := context.WithTimeout(ctx, restTimeout)
		defer cancel()
		out.err = t.On.Sleep(ctx, t.Handle, sandbox.SleepStop)
	case Wake, Thaw:
		ctx, stop := c.resting(ctx, t)
		defer stop()
		out = c.wake(ctx, t)
		out.err = unlessEnded(ctx, out.err)
	case Renew:
		out = c.renew(ctx, t)
	case Kill:
		out = c.kill(ctx, t)
	default: // a hook's own
		out = c.actOfHook(ctx, t)
	}
	return readHistory(ctx, t, out)
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

// actOfHook takes a step that a hook proposed. Without an actor it fills the sandbox.
func (c *Core) actOfHook(ctx context.Context, t *Task) (out outcome) {
	done, isOwn := c.hooks.Act(ctx, &t.Step)
	if !isOwn {
		out.settles, out.err = c.fillAgain(ctx, t)
		return out
	}
	return outcome{
		err:     done.Err,
		settles: []Settle{done.Settle},
		failed:  done.Failed,
		reading: done.Usage,
		sampled: done.Sampled,
		frozen:  done.Frozen,
		stuck:   done.Stuck,
	}
}

func (c *Core) spawn(ctx context.Context, t *Task) (out outcome) {
	bounded, cancel := context.WithTimeout(ctx, SpawnTimeout)
	defer cancel()
	spec, err := c.buildSpec(t)
	if err == nil {
		spec.KeepDisk, err = c.keepsDisk(ctx, t)
	}
	if err == nil {
		err = t.On.Spawn(bounded, spec)
	}
	var own filling
	if err == nil {
		own, err = c.prepare(ctx, t)
	}
	if err == nil && !own.inUse {
		err = c.copyIn(bounded, t)
	}
	if err != nil {
		return outcome{err: err}
	}
	if t.Again || c.hooks.Initializes(&t.Row) { // it did not start just now: usage counts from when it did
		if obs, err := t.On.Inspect(bounded, t.Handle); err == nil {
			out.since = obs.StartedAt
		}
	}
	out.settles, out.err = FillAll(ctx, &t.Step, own.fills)
	return out
}

// assign wakes a sandbox from a pool, if it sleeps, and gives it to its lease. What it begins with is read meanwhile.
func (c *Core) assign(ctx context.Context, t *Task) (out outcome) {
	bounded, cancel := context.WithTimeout(ctx, restTimeout)
	defer cancel()
	var (
		own     filling
		readErr error
		reading sync.WaitGroup
	)
	reading.Go(func() { own, readErr = c.prepare(ctx, t) })
	if t.Awake {
		out.err = c.assignAwake(bounded, t)
	} else if out.started, out.err = t.On.Wake(bounded, t.Handle); out.err == nil {
		out.err = t.On.Assign(bounded, c.spec(t))
	}
	reading.Wait()
	if out.err == nil {
		out.err = readErr
	}
	if out.err == nil {
		if c.hooks.Initializes(&t.Row) {
			out.since = c.now()
		}
		out.settles, out.err = FillAll(ctx, &t.Step, own.fills)
	}
	return out
}

// assignAwake assigns a sandbox that waits awake. One that does not answer is given up: another takes its place sooner.
func (c *Core) assignAwake(ctx context.Context, t *Task) error {
	bounded, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	err := t.On.Assign(bounded, c.spec(t))
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return sandbox.Errorf(sandbox.Failed, "it does not answer: %w", err)
	}
	return err
}

// filling is what a sandbox is given once it runs for its lease. One that waits in a pool has none.
type filling struct {
	fills []Fill
	// inUse: an earlier try has begun to run code in the sandbox, so what that found stays as it left it.
	inUse bool
}

// prepare reads what a sandbox begins with.
func (c *Core) prepare(ctx context.Context, t *Task) (own filling, err error) {
	s := &t.Row
	if s.Pooled() {
		return own, nil
	}
	err = c.store.Read(ctx, func(tx *ledger.Tx) error {
		env, err := tx.KnownEnvironment(s.EnvironmentID)
		if err != nil {
			return err
		}
		if own.inUse, err = c.hooks.HasBegun(tx, s); err != nil {
			return err
		}
		own.fills, err = c.hooks.Prepare(tx, s, Beginning{Action: t.Action, Spec: env.Spec, InUse: own.inUse})
		return err
	})
	return own, err
}

// fillAgain fills a sandbox that runs and has begun: it gets what it may have lost in its sleep, or was changed
// meanwhile.
func (c *Core) fillAgain(ctx context.Context, t *Task) ([]Settle, error) {
	if t.Row.Pooled() {
		return nil, nil
	}
	var fills []Fill
	err := c.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		fills, err = c.hooks.Prepare(tx, &t.Row, Beginning{Action: t.Action})
		return err
	})
	if err != nil {
		return nil, err
	}
	return FillAll(ctx, &t.Step, fills)
}

// wake wakes a sandbox and fills it again.
func (c *Core) wake(ctx context.Context, t *Task) (out outcome) {
	out.started, out.err = t.On.Wake(ctx, t.Handle)
	if out = seeDisk(ctx, t, out); out.err == nil {
		out.settles, out.err = c.fillAgain(ctx, t)
	}
	return out
}

// renew tells a backend that a sandbox is used, and finds out whether it rests where it may.
func (c *Core) renew(ctx context.Context, t *Task) (out outcome) {
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
func (c *Core) kill(ctx context.Context, t *Task) outcome {
	if err := c.hooks.Leaving(ctx, &t.Step); err != nil {
		return outcome{err: err}
	}
	bounded, cancel := context.WithTimeout(ctx, KillTimeout)
	defer cancel()
	if t.On.Capabilities().Records || t.Row.Phase == sandbox.PhasePending {
		return c.sampleAndKill(bounded, t)
	}
	before, unknown := historyOf(bounded, t.On, t.Handle)
	out := c.sampleAndKill(bounded, t)
	out.runtimeHistory = before
	switch {
	case out.err == nil && unknown != nil: // whether it has removed anything is not known
		out.err = errUnknownHistory(unknown)
	case out.err != nil && unknown == nil && !before.absent: // it may have removed the sandbox, and not all that it had
		if after, err := historyOf(ctx, t.On, t.Handle); err == nil && after.absent {
			if after.removedAt.IsZero() {
				after.removedAt = c.now()
			}
			if len(after.ran) == 0 {
				after.ran = before.ran
			}
			out.runtimeHistory = after
		}
	}
	return out
}

// lastSamples bounds the last readings of CPU time that are taken at once. While a whole game ends, more
// of them would hold up what they stand beside.
const lastSamples = 4

// sampleAndKill takes a last reading of CPU time beside the call that ends a sandbox. The call does
// not wait for it: an engine may take a second to answer, and the reading of the last command or
// heartbeat then stands, as it does where many sandboxes end at once.
func (c *Core) sampleAndKill(ctx context.Context, t *Task) outcome {
	if t.Row.Phase != sandbox.PhaseAwake {
		return outcome{err: t.On.Kill(ctx, t.Handle)}
	}
	select {
	case c.lastSamples <- struct{}{}:
		defer func() { <-c.lastSamples }()
	default:
		return outcome{err: t.On.Kill(ctx, t.Handle)}
	}
	sampling, stop := context.WithCancel(ctx)
	defer stop()
	reading := make(chan outcome, 1)
	go func() { reading <- c.sample(sampling, t.On, t.Handle, &t.Row) }()
	err := t.On.Kill(ctx, t.Handle)
	stop()
	out := <-reading
	out.err = err
	return out
}

// sample reads what a sandbox and its companions have used before that is lost. Failing to is not an error: the last
// heartbeat's reading then stands.
func (c *Core) sample(ctx context.Context, x driver.Executor, h driver.Handle, s *ledger.Sandbox) outcome {
	var (
		reading    sync.WaitGroup
		mu         sync.Mutex // guards companions
		companions = make(map[string]ledger.CompanionReading)
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
				companions[name] = ledger.CompanionReading{CPU: ledger.SpanOf(u.CPUTime), Since: is.Since}
			})
		}
	}
	u, err := Sample(ctx, x, h)
	reading.Wait()
	if err != nil {
		c.log.DebugContext(ctx, "lifecycle: sampling usage", "environment", h.EnvironmentID,
			"sandbox", h.SandboxID, "error", err)
		return outcome{}
	}
	return outcome{reading: u, sampled: true, companions: companions}
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
func (l runtimeHistory) until(s *ledger.Sandbox, now ledger.Time) ledger.Time {
	switch {
	case !l.absent:
		return now
	case l.removedAt.IsZero():
		return max(s.ObservedAt, s.ReadyAt)
	default:
		return min(now, ledger.At(l.removedAt))
	}
}
