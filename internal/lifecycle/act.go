package lifecycle

import (
	"context"
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
	var out outcome
	switch t.Action {
	case Spawn:
		out = c.attested(ctx, t, func() outcome { return c.spawn(ctx, t) })
	case Assign:
		out = c.attested(ctx, t, func() outcome { return c.assign(ctx, t) })
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
