package lifecycle

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

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
