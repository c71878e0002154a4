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
