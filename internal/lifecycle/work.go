package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Task is one claimed step on one sandbox.
type Task struct {
	Step
	// Awake: the sandbox is awake, so an assignment does not wake it.
	Awake bool
}

// Essential marks work that ends leases, or keeps those in use active. On a full disk, its writes may use the ledger's
// reserve.
func Essential(ctx context.Context) context.Context { return storage.Essential(ctx) }

// errClaimed: another caller has claimed the sandbox.
var errClaimed = errors.New("claimed")

// refusal: a step that a request wants may not be claimed before a time.
type refusal struct{ until micro.Time }

func (r *refusal) Error() string { return "refused until " + r.until.Time().Format(time.RFC3339) }

// Work claims a sandbox, takes its next step if it is due, and settles it. It does nothing while another caller works
// on the sandbox. It returns the error of the step, which the row also records.
func (c *Core) Work(ctx context.Context, sandboxID string) error {
	ctx = Essential(ctx)
	t, err := c.claim(ctx, sandboxID, None)
	if errors.Is(err, errClaimed) || t == nil {
		return dropClaimed(err)
	}
	return c.TakeStep(ctx, t)
}

// Drive takes one step of a sandbox toward a wanted action, once no other caller works on it. The caller must look
// again: another step may have been due, or the lease may have ended meanwhile.
func (c *Core) Drive(ctx context.Context, sandboxID string, want Action) error {
	if err := c.awaitTurn(ctx, sandboxID, want); err != nil {
		return err
	}
	t, err := c.claim(ctx, sandboxID, want)
	if refused, ok := errors.AsType[*refusal](err); ok {
		return c.Pause(ctx, nil, refused.until) // no commit tells that the step may be taken
	}
	if err != nil || t == nil {
		return dropClaimed(err)
	}
	if err := c.TakeStep(ctx, t); t.Action != Save || ctx.Err() != nil {
		return AsError(err)
	}
	return nil // a failed save fails no request: the lease shows it
}

func dropClaimed(err error) error {
	if errors.Is(err, errClaimed) {
		return nil
	}
	return err
}

// claim reserves a sandbox for its next step, or for the wanted one if that may come first. It returns nil if there is
// nothing to do. Errors: errClaimed; *refusal of the wanted step; Unavailable if its instance cannot be reached.
func (c *Core) claim(ctx context.Context, sandboxID string, want Action) (t *Task, err error) {
	err = c.Reaching(ctx, func() (err error) {
		t, err = c.claimReached(ctx, sandboxID, want)
		return err
	})
	return t, err
}

// claimReached is claim for a sandbox whose instance is connected. Errors: also AwayError.
func (c *Core) claimReached(ctx context.Context, sandboxID string, want Action) (*Task, error) {
	var (
		t    *Task
		away error
	)
	err := c.store.Write(ctx, func(tx *ledger.Tx) error {
		t, away = nil, nil
		s, held, err := sandboxAndHold(tx, sandboxID)
		if err != nil || s.Tombstone != nil {
			return err
		}
		if s.Claim.Holds(tx.Now) {
			return errClaimed
		}
		return tx.UpdateRow(s, func(s *ledger.Sandbox) (err error) {
			t, away, err = c.claimNext(tx, s, held, want)
			return err
		})
	})
	if err != nil {
		if t != nil {
			c.ReleaseClaim(t)
		}
		return nil, err
	}
	if away != nil {
		return nil, away
	}
	c.KeepClaim(t)
	return t, nil
}

// claimNext claims the next step of an unclaimed sandbox, or the wanted one if that may come first. It returns nil if
// there is nothing to do. It records an end that is due even if the sandbox's instance is away.
func (c *Core) claimNext(tx *ledger.Tx, s *ledger.Sandbox, held micro.Time,
	want Action) (t *Task, away, err error) {
	if s.Ending.KeptUntil <= tx.Now {
		if err := EndRetention(tx, s, endOfPostMortem); err != nil {
			return nil, nil, err
		}
	}
	next, due, end := c.hooks.Decide(s, held, tx.Now)
	if end != nil {
		if err := c.End(tx, s, *end); err != nil {
			return nil, nil, err
		}
		next, due, _ = c.hooks.Decide(s, held, tx.Now)
	}
	wanted := c.hooks.InsteadOf(next, want, s, held, tx.Now)
	switch {
	case wanted == None: // a failed step that is no longer wanted is dropped
		s.Schedule.Reset(due)
		s.Claim.Token = ""
		return nil, nil, nil
	case wanted == next && s.Schedule.DueAt > tx.Now:
		return nil, nil, nil // it waits for a retry
	}
	if away := c.Answers(s.Backend, s.Instance); away != nil {
		return nil, away, nil
	}
	if wanted == Sleep {
		s.Status.StopReason = stopReason(s, next)
	}
	t, err = c.ClaimStep(tx, s, wanted)
	if t == nil && err == nil && wanted != next {
		err = &refusal{until: s.Schedule.DueAt} // only the caller waits until then: the row's own step is due as before
	}
	return t, nil, err
}

// ClaimStep puts a claim on a row. If the step has to wait, it returns nil, and the row is due later.
func (c *Core) ClaimStep(tx *ledger.Tx, s *ledger.Sandbox, a Action) (*Task, error) {
	if ok, err := c.hooks.Admit(tx, s, a); err != nil || !ok {
		return nil, err
	}
	t, err := c.reserve(tx, s, a)
	if err == nil {
		err = c.hooks.Claimed(tx, s, &t.Step)
	}
	if err != nil {
		c.hooks.Released(a)
		return nil, err
	}
	return t, nil
}

// reserve puts a claim on a row.
func (c *Core) reserve(tx *ledger.Tx, s *ledger.Sandbox, a Action) (*Task, error) {
	x, h, err := c.On(s)
	if err != nil {
		return nil, err
	}
	t := &Task{Step: Step{
		Action: a,
		Claim:  c.store.NewClaim(c.ids),
		Again:  s.Claim.Token != "" || s.Schedule.Attempts > 0,
		Began:  tx.Now,
		On:     x,
		Handle: h,
	}}
	s.Claim = ledger.Claim{Token: t.Claim, For: string(a), Until: tx.Now.Add(micro.SpanOf(ClaimTTL))}
	if !t.Again {
		err = emitBeginning(tx, s, a)
	}
	t.Row = *s
	return t, err
}

// KeepClaim lets the heartbeat extend a claim until ReleaseClaim.
func (c *Core) KeepClaim(t *Task) {
	if t == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claims[t.Claim] = t.Row.ID
}

func (c *Core) ReleaseClaim(t *Task) {
	c.hooks.Released(t.Action)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.claims, t.Claim)
}

var ErrClosing = sandbox.Errorf(sandbox.Unavailable, "the lease service is closing")

// TakeStep takes a claimed step and settles it. The step is finished and recorded even after ctx ends. TakeStep itself
// returns early, with ctx's error.
func (c *Core) TakeStep(ctx context.Context, t *Task) error {
	done := make(chan error, 1)
	started := c.Background(func() {
		defer c.ReleaseClaim(t)
		detached := context.WithoutCancel(ctx)
		out := c.act(detached, t)
		err := c.settle(detached, t, out)
		c.tell(t, out, err)
		done <- err
		if err == nil {
			c.hooks.Finished(&t.Step)
		}
	})
	if !started {
		c.ReleaseClaim(t)
		return ErrClosing
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return sandbox.Errorf(sandbox.Timeout, "%s of sandbox %s goes on: %w", t.Action, t.Row.ID, ctx.Err())
	}
}

// tell reports a step and its result to the observer.
func (c *Core) tell(t *Task, out outcome, recorded error) {
	err := out.err
	if err == nil {
		err = recorded
	}
	now := c.now()
	c.observer.Stepped(t.Row.Backend, string(t.Action), sandbox.CodeOf(err), now.Sub(t.Began.Time()))
	if t.Action == Kill && err == nil && t.Row.Ending.At != 0 {
		c.observer.Destroyed(t.Row.Backend, t.Row.Ending.By, now.Sub(t.Row.Ending.At.Time()))
	}
}
