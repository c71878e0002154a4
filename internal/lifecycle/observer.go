package lifecycle

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Observer learns what one core did, for metrics. Its methods are safe for concurrent use and
// return at once.
type Observer interface {
	// Stepped: a step on a backend (spawn, assign, sleep, wake, save, kill) has taken so long, from its claim
	// until it was recorded. code is "" where it did what it should.
	Stepped(b sandbox.Backend, step string, code sandbox.Code, took time.Duration)
	// Destroyed: a sandbox was gone so long after its lease had ended.
	Destroyed(b sandbox.Backend, endedBy sandbox.EndedBy, after time.Duration)
}

type nopObserver struct{}

func (nopObserver) Stepped(sandbox.Backend, string, sandbox.Code, time.Duration) {}
func (nopObserver) Destroyed(sandbox.Backend, sandbox.EndedBy, time.Duration)    {}

// tell reports a step to the observer, with how it was recorded.
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
