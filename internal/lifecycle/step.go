package lifecycle

import (
	"fmt"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Action is what the service does to a sandbox on its backend in one step. A hook may propose its own actions. Their
// steps fill the sandbox.
type Action string

// The actions of the core.
const (
	None  Action = ""
	Spawn Action = "spawn"
	// Assign gives a sandbox of a warm pool to its lease and wakes it.
	Assign Action = "assign"
	Sleep  Action = "sleep"
	Wake   Action = "wake"
	// Renew reports a use that the backend has not seen, or changed limits, to a backend that keeps time.
	Renew Action = "renew"
	Kill  Action = "kill"
	// Halt stops a failed sandbox that is kept.
	Halt Action = "halt"
	// Freeze stops all code of a sandbox whose lease has ended, before its last save.
	Freeze Action = "freeze"
	// Save saves /data: a checkpoint while the sandbox is wanted, the last save afterwards.
	Save Action = "save"
	// Thaw thaws a sandbox whose reconciler died during a checkpoint.
	Thaw Action = "thaw"
	// Upload is the action of a save after its sandbox was thawed: the sandbox may be used again.
	Upload Action = "upload"
)

// Begins reports whether the step makes a sandbox usable for its lease, or for a pool.
func (a Action) Begins() bool { return a == Spawn || a == Assign }

// Runs reports whether the step starts or stops the sandbox.
func (a Action) Runs() bool {
	switch a {
	case Spawn, Assign, Sleep, Wake, Kill, Halt:
		return true
	default:
		return false
	}
}

// Step is a claimed step on one sandbox.
type Step struct {
	// Row is the sandbox at the time of the claim.
	Row    ledger.Sandbox
	Action Action
	Claim  string
	// Again: an earlier attempt may have reached the backend.
	Again bool
	// Began is when the step was claimed. For a save it is the time whose state of /data is saved.
	Began micro.Time
	// On is the backend of the sandbox, Handle its name there.
	On     driver.Executor
	Handle driver.Handle
}

// Last reports whether the lease ended before the step. Then the sandbox will be removed, and a save is its last one.
func (t *Step) Last() bool { return t.Row.Desired == ledger.Gone }

// Ending is the reason why a lease ends.
type Ending struct {
	By sandbox.EndedBy
	// Code is set if the sandbox failed.
	Code   sandbox.Reason
	Reason string
	At     micro.Time
}

// TimeUp returns the ending of a lease that has expired, nil before. held is when the sandbox's last hold
// ends.
func TimeUp(s *ledger.Sandbox, held, now micro.Time) *Ending {
	at := s.ExpiresAt(held, now)
	switch {
	case at > now:
		return nil
	case at == s.Deadline():
		why := fmt.Sprintf("its max_lifetime of %s has passed", s.MaxLifetime.Duration())
		return &Ending{By: sandbox.EndedByMaxLifetime, At: at, Reason: why}
	default:
		why := fmt.Sprintf("its ttl of %s has passed without activity", s.TTL.Duration())
		return &Ending{By: sandbox.EndedByTTL, At: at, Reason: why}
	}
}

// The pace of retries.
const (
	FirstRetry = 500 * time.Millisecond
	LastRetry  = 30 * time.Second
)

// Backoff returns the wait after the nth consecutive failure, from 1.
func Backoff(n int64) time.Duration {
	d := FirstRetry
	for ; n > 1 && d < LastRetry; n-- {
		d *= 2
	}
	return min(d, LastRetry)
}
