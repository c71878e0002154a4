package lifecycle

import (
	"context"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// outcome is what a step found.
type outcome struct {
	err error
	// since is when the sandbox began to run, where the step did not start it itself.
	since time.Time
	usage
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

// act takes the one action of a step on its backend.
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

// outcomeOf is what a hook found that took its own step.
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

// attest adds the number that was left on the instance. A sandbox without it is not usable.
func (out *outcome) attest(a attestation) {
	if a.err == nil {
		out.attested = a.number
	} else if out.err == nil {
		out.err = a.err
	}
}
