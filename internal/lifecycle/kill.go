package lifecycle

import (
	"context"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

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
