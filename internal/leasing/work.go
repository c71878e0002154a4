package leasing

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/state"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// task is one claimed step on one sandbox.
type task struct {
	row    ledger.Sandbox
	action action
	claim  string
	// again: an earlier try may have reached the backend.
	again bool
	// awake: an assignment needs no wake before.
	awake bool
	// began is when it was claimed, for a save the moment as of which it is; object is where that goes.
	began  ledger.Time
	object string
}

// last reports whether a save is the last one, of a sandbox that is to go.
func (t *task) last() bool { return t.row.Desired == ledger.Gone }

// errClaimed: another caller works on the sandbox now.
var errClaimed = errors.New("claimed")

// Work claims a sandbox, takes its one next step if it is due, and settles. It does nothing when
// another caller works on it. The error is that of the step; it is recorded on the row as well.
func (e *Engine) Work(ctx context.Context, sandboxID string) error {
	ctx = ledger.Essential(ctx) // leases end on a full disk too
	t, err := e.claim(ctx, sandboxID, actNone)
	if errors.Is(err, errClaimed) || t == nil {
		return dropClaimed(err)
	}
	return e.run(ctx, t)
}

func dropClaimed(err error) error {
	if errors.Is(err, errClaimed) {
		return nil
	}
	return err
}

// claim reserves a sandbox for its next step, or for the wanted one where that makes sense; it
// returns nil when there is nothing to do. Errors: errClaimed; Unavailable where its instance is not reached.
func (e *Engine) claim(ctx context.Context, sandboxID string, want action) (t *task, err error) {
	err = e.reaching(ctx, func() (err error) {
		t, err = e.claimReached(ctx, sandboxID, want)
		return err
	})
	return t, err
}

// claimReached is claim, for a sandbox whose instance was reached. Errors: also awayError.
func (e *Engine) claimReached(ctx context.Context, sandboxID string, want action) (*task, error) {
	var (
		t    *task
		away error
	)
	err := e.store.Write(ctx, func(tx *ledger.Tx) error {
		t, away = nil, nil
		s, held, err := sandboxAndHold(tx, sandboxID)
		if err != nil || s.Retired != nil {
			return err
		}
		if s.Claim.Holds(tx.Now) {
			return errClaimed
		}
		return tx.UpdateRow(s, func(s *ledger.Sandbox) (err error) {
			t, away, err = e.claimNext(tx, s, held, want)
			return err
		})
	})
	if err != nil {
		if t != nil {
			e.release(t)
		}
		return nil, err
	}
	if away != nil {
		return nil, away
	}
	e.keep(t)
	return t, nil
}

// claimNext claims the next step of a sandbox that is not claimed, or the wanted one where that makes sense. It returns
// nil when there is nothing to do. An end that has come is recorded even where the sandbox's instance is away.
func (e *Engine) claimNext(tx *ledger.Tx, s *ledger.Sandbox, held ledger.Time, want action) (t *task, away, err error) {
	if s.Ending.KeptUntil <= tx.Now {
		if err := bury(tx, s, endOfPostMortem); err != nil {
			return nil, nil, err
		}
	}
	next, due, end := decide(s, held, tx.Now)
	if end != nil {
		if err := e.endLease(tx, s, *end); err != nil {
			return nil, nil, err
		}
		next, due, _ = decide(s, held, tx.Now)
	}
	wanted := insteadOf(next, want, s, held, tx.Now)
	switch {
	case wanted == actNone: // a step that failed and is not wanted any more is not at hand
		s.Schedule.Reset(due)
		s.Claim.Token = ""
		return nil, nil, nil
	case wanted == next && s.Schedule.DueAt > tx.Now:
		return nil, nil, nil // it waits for a retry
	}
	if away := e.answers(s.Backend, s.Instance); away != nil {
		return nil, away, nil
	}
	if wanted == actSleep {
		s.Standing.StopReason = stopReason(s, next)
	}
	t, err = e.take(tx, s, wanted)
	return t, nil, err
}

// take puts a claim on a row, unless the step has to wait: then it returns nil, and the row is due later.
func (e *Engine) take(tx *ledger.Tx, s *ledger.Sandbox, a action) (*task, error) {
	switch a {
	case actSpawn, actAssign:
		if mayBegin, err := e.takeState(tx, s); err != nil || !mayBegin {
			return nil, err
		}
	case actSave:
		return e.takeSave(tx, s)
	}
	return e.reserve(tx, s, a)
}

// reserve puts a claim on a row.
func (e *Engine) reserve(tx *ledger.Tx, s *ledger.Sandbox, a action) (*task, error) {
	t := &task{action: a, claim: e.store.NewClaim(e.ids), again: s.Claim.Token != "" || s.Schedule.Attempts > 0, began: tx.Now}
	s.Claim = ledger.Claim{Token: t.claim, For: string(a), Until: tx.Now.Add(ledger.SpanOf(claimTTL))}
	var err error
	if !t.again {
		err = tellBeginning(tx, s, a)
	}
	t.row = *s
	return t, err
}

// keep has the heartbeat extend a task's claim until release.
func (e *Engine) keep(t *task) {
	if t == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.claims[t.claim] = t.row.ID
}

func (e *Engine) release(t *task) {
	if t.action == actSave {
		<-e.saving
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.claims, t.claim)
}

var errClosing = sandbox.Errorf(sandbox.Unavailable, "the lease engine is closing")

// run takes a claimed step and settles it, past the end of ctx: a step that was begun is finished
// and recorded. It returns early, with ctx's error, when ctx ends.
func (e *Engine) run(ctx context.Context, t *task) error {
	done := make(chan error, 1)
	started := e.background(func() {
		defer e.release(t)
		detached := context.WithoutCancel(ctx)
		out := e.act(detached, t)
		err := e.settle(detached, t, out)
		e.tell(t, out, err)
		done <- err
		if err == nil && (t.action == actWake || len(out.processes) > 0) {
			e.startProcessesOf(&t.row)
		}
	})
	if !started {
		e.release(t)
		return errClosing
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return sandbox.Errorf(sandbox.Timeout, "%s of sandbox %s goes on: %w", t.action, t.row.ID, ctx.Err())
	}
}

// outcome is what a step found.
type outcome struct {
	err error
	// since is when the sandbox began to run, where the step did not start it itself.
	since   time.Time
	reading driver.Usage
	// sampled: there is a reading.
	sampled bool
	life
	// attested is the witness's number that its instance has, 0 where nothing was left.
	attested int64
	// rest is a sandbox that was found to have been put to rest by its backend, nil where none was.
	rest *driver.Observation
	// restored is what /data was filled with, saved what was stored of it.
	restored *sandbox.SavedState
	// processes are what its environment declares.
	processes []sandbox.ProcessSpec
	saved     *state.Archive
	// unread: a save failed before the store had a part in it. frozen: nothing of the sandbox runs
	// any more. stuck: it was frozen for a checkpoint and does not run again.
	unread, frozen, stuck bool
}

// act does a step's one thing on the backend.
func (e *Engine) act(ctx context.Context, t *task) outcome {
	x, err := e.backendFor(t.row.Backend)
	if err != nil {
		return outcome{err: err}
	}
	h := e.handle(&t.row)
	var out outcome
	switch t.action {
	case actSpawn:
		out = e.attested(ctx, x, t, func() outcome { return e.spawn(ctx, x, t, h) })
	case actAssign:
		out = e.attested(ctx, x, t, func() outcome { return e.assign(ctx, x, t, h) })
	case actSleep:
		out = e.sample(ctx, x, h)
		ctx, cancel := context.WithTimeout(ctx, restTimeout)
		defer cancel()
		out.err = x.Sleep(ctx, h, t.row.SleepMode)
	case actSave:
		out = e.save(ctx, x, t, h)
	case actHalt:
		ctx, cancel := context.WithTimeout(ctx, restTimeout)
		defer cancel()
		out.err = x.Sleep(ctx, h, sandbox.SleepStop)
	case actWake, actThaw:
		ctx, cancel := context.WithTimeout(ctx, restTimeout)
		defer cancel()
		out.err = e.wake(ctx, x, t)
	case actRenew:
		out = e.renew(ctx, x, t, h)
	case actDeliver:
		out.err = e.deliver(ctx, x, &t.row)
	case actKill:
		out = e.kill(ctx, x, t, h)
	}
	return readRecord(ctx, x, t, h, out)
}

func (e *Engine) spawn(ctx context.Context, x *backend, t *task, h driver.Handle) (out outcome) {
	bounded, cancel := context.WithTimeout(ctx, spawnTimeout)
	defer cancel()
	spec, err := e.equip(&t.row)
	if err == nil {
		err = x.Spawn(bounded, spec)
	}
	var own endowment
	if err == nil {
		own, err = e.endowmentOf(ctx, &t.row)
	}
	if err == nil && !own.inUse {
		err = e.copyIn(bounded, x, &t.row)
	}
	if err != nil {
		return outcome{err: err}
	}
	if t.again || runsPostStart(&t.row) { // it did not start just now: usage counts from when it did
		if obs, err := x.Inspect(bounded, h); err == nil {
			out.since = obs.StartedAt
		}
	}
	out.restored, out.err = e.endow(ctx, x, t, own)
	out.processes = own.spec.Processes
	return out
}

// assign wakes a sandbox from a pool, if it sleeps, and gives it to its lease. What it begins with is read meanwhile.
func (e *Engine) assign(ctx context.Context, x *backend, t *task, h driver.Handle) (out outcome) {
	bounded, cancel := context.WithTimeout(ctx, restTimeout)
	defer cancel()
	var (
		own     endowment
		readErr error
		reading sync.WaitGroup
	)
	reading.Go(func() { own, readErr = e.endowmentOf(ctx, &t.row) })
	if t.awake {
		out.err = e.assignAwake(bounded, x, t)
	} else if out.err = x.Wake(bounded, h); out.err == nil {
		out.err = x.Assign(bounded, e.spec(&t.row))
	}
	reading.Wait()
	if out.err == nil {
		out.err = readErr
	}
	if out.err == nil {
		if runsPostStart(&t.row) {
			out.since = e.now()
		}
		out.restored, out.err = e.endow(ctx, x, t, own)
		out.processes = own.spec.Processes
	}
	return out
}

// assignAwake assigns a sandbox that waits awake. One that does not answer is given up: another takes its place sooner.
func (e *Engine) assignAwake(ctx context.Context, x *backend, t *task) error {
	bounded, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	err := x.Assign(bounded, e.spec(&t.row))
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return sandbox.Errorf(sandbox.Failed, "it does not answer: %w", err)
	}
	return err
}

// lastSamples bounds the last readings of CPU time that are taken at once. While a whole game ends, more
// of them would hold up what they stand beside.
const lastSamples = 4

// sampleBeside takes a last reading of CPU time beside the call that ends a sandbox. The call does
// not wait for it: an engine may take a second to answer, and the reading of the last command or
// heartbeat then stands, as it does where many sandboxes end at once.
func (e *Engine) sampleBeside(ctx context.Context, x *backend, t *task, h driver.Handle, end func(context.Context, driver.Handle) error) outcome {
	if t.row.Phase != sandbox.PhaseAwake {
		return outcome{err: end(ctx, h)}
	}
	select {
	case e.lastSamples <- struct{}{}:
		defer func() { <-e.lastSamples }()
	default:
		return outcome{err: end(ctx, h)}
	}
	sampling, stop := context.WithCancel(ctx)
	defer stop()
	reading := make(chan outcome, 1)
	go func() { reading <- e.sample(sampling, x, h) }()
	err := end(ctx, h)
	stop()
	out := <-reading
	out.err = err
	return out
}

// sample reads what a sandbox has used before that is lost. Failing to is not an error: the last heartbeat's
// reading then stands.
func (e *Engine) sample(ctx context.Context, x *backend, h driver.Handle) outcome {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	u, err := x.Usage(ctx, h)
	if err != nil {
		e.log.DebugContext(ctx, "leasing: sampling usage", "environment", h.EnvironmentID, "sandbox", h.SandboxID, "error", err)
		return outcome{}
	}
	return outcome{reading: u, sampled: true}
}

// await works on a sandbox, or waits while others do, until done is satisfied, which may read more in the
// transaction that it is asked in.
func (e *Engine) await(ctx context.Context, sandboxID string, done func(tx *ledger.Tx, s *ledger.Sandbox) (bool, error)) error {
	for {
		changed := e.store.Changed()
		var s, holder *ledger.Sandbox
		var now ledger.Time
		var isDone bool
		err := e.store.Read(ctx, func(tx *ledger.Tx) (err error) {
			now = tx.Now
			if s, err = mustSandbox(tx, sandboxID); err != nil {
				return err
			}
			if isDone, err = done(tx, s); err == nil && !isDone {
				holder, err = holderAwaited(tx, s)
			}
			return err
		})
		if err != nil || isDone {
			return err
		}
		if !s.Claim.Holds(now) && s.Schedule.DueAt <= now {
			if err := e.Work(ctx, sandboxID); err != nil {
				return err
			}
			continue
		}
		if holder != nil {
			if err := e.awaitState(ctx, s, holder, changed); err != nil {
				return err
			}
			continue
		}
		if !s.Claim.Holds(now) && s.Schedule.Attempts > 0 {
			return sandbox.Errorf(sandbox.Unavailable, "lease %s: %s; it is tried again at %s", s.Lease(), s.Schedule.LastError, s.Schedule.DueAt.Time().Format(time.RFC3339))
		}
		if err := e.pause(ctx, changed, max(s.Claim.Until, s.Schedule.DueAt)); err != nil {
			return err
		}
	}
}

// pause waits for a commit or a moment.
func (e *Engine) pause(ctx context.Context, changed <-chan struct{}, until ledger.Time) error {
	timer := time.NewTimer(min(max(until.Time().Sub(e.now()), time.Millisecond), claimTTL))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-e.life.Done():
		return errClosing
	case <-ctx.Done():
		return sandbox.Errorf(sandbox.Timeout, "waiting for the sandbox: %w", ctx.Err())
	}
	return nil
}

// mustSandbox returns a sandbox that a caller knows to exist.
func mustSandbox(tx *ledger.Tx, id string) (*ledger.Sandbox, error) {
	s, err := tx.Sandbox(id)
	if err == nil && s == nil {
		err = sandbox.Errorf(sandbox.NotFound, "there is no sandbox %s on this ledger", id).WithReason(sandbox.ReasonSandboxNotFound)
	}
	return s, err
}

func sandboxAndHold(tx *ledger.Tx, id string) (*ledger.Sandbox, ledger.Time, error) {
	s, err := mustSandbox(tx, id)
	if err != nil {
		return nil, 0, err
	}
	held, err := tx.HeldUntil(id)
	return s, held, err
}
