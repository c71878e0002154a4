package leasing

import (
	"context"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Observer is told of what one engine did, for metrics. Its methods are safe for concurrent use and
// return at once.
type Observer interface {
	// Stepped: a step on a backend (spawn, assign, sleep, wake, save, kill) has taken so long, from its claim
	// until it was recorded. code is "" where it did what it should.
	Stepped(b sandbox.Backend, step string, code sandbox.Code, took time.Duration)
	// Destroyed: a sandbox was gone so long after its lease had ended.
	Destroyed(b sandbox.Backend, endedBy sandbox.EndedBy, after time.Duration)
}

type nobody struct{}

func (nobody) Stepped(sandbox.Backend, string, sandbox.Code, time.Duration) {}
func (nobody) Destroyed(sandbox.Backend, sandbox.EndedBy, time.Duration)    {}

// tell tells the observer of a step, and of how it was recorded.
func (e *Engine) tell(t *task, out outcome, recorded error) {
	err := out.err
	if err == nil {
		err = recorded
	}
	now := e.now()
	e.observer.Stepped(t.row.Backend, string(t.action), sandbox.CodeOf(err), now.Sub(t.began.Time()))
	if t.action == actKill && err == nil && t.row.Ending.At != 0 {
		e.observer.Destroyed(t.row.Backend, t.row.Ending.By, now.Sub(t.row.Ending.At.Time()))
	}
}

// Census is how many of what there is now.
type Census struct {
	Sandboxes []ledger.SandboxCount
	// Ending is, of each backend, for how long the sandbox is to go by now that is to go for longest; 0 where none is.
	Ending map[sandbox.Backend]time.Duration
	// Findings are open differences between ledger and backends.
	Findings map[sandbox.DriftKind]int64
	// Kept is the output that is kept, and how much of it was dropped since the ledger was made.
	Kept ledger.KeptSum
	// Overdue is for how long work has waited that this engine could do; 0 is that none does.
	Overdue time.Duration
}

// Reachable says of each backend whether it is connected. It waits for nothing.
func (e *Engine) Reachable() map[sandbox.Backend]bool {
	reachable := make(map[sandbox.Backend]bool, len(e.backends))
	for name, b := range e.backends {
		reachable[name] = b.instance() != ""
	}
	return reachable
}

// Census counts. Errors: Unavailable.
func (e *Engine) Census(ctx context.Context) (Census, error) {
	c := Census{Ending: make(map[sandbox.Backend]time.Duration, len(e.backends))}
	for name := range e.backends {
		c.Ending[name] = 0
	}
	instances := e.inReach()
	err := e.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		if c.Sandboxes, err = tx.CountSandboxes(); err != nil {
			return err
		}
		if c.Kept, err = tx.Commands().KeptSum(ledger.KeptOfLedger, ""); err != nil {
			return err
		}
		ended, err := tx.OldestEnded()
		if err != nil {
			return err
		}
		for name, at := range ended {
			c.Ending[name] = tx.Now.Time().Sub(at.Time())
		}
		if c.Findings, err = tx.CountFindings(); err != nil {
			return err
		}
		for _, instance := range instances {
			next, err := tx.NextDue(instance)
			if err != nil {
				return err
			}
			if next < tx.Now {
				c.Overdue = max(c.Overdue, tx.Now.Time().Sub(next.Time()))
			}
		}
		return nil
	})
	return c, err
}
