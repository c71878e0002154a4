package lifecycle

import (
	"context"
	"log/slog"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The caller who cancels a command or kills a process may leave before its sandbox has ended it. What is recorded must
// end anyway: each pass of the reconciler asks again.

// Run is a command, or one run of a process.
type Run struct {
	ID        string
	SandboxID string
	User      string    // whom it runs as
	About     slog.Attr // names it in the log
}

const (
	// endLimit bounds one request to end a run.
	endLimit = time.Minute
	// endPause is the pause after a request. The passes in between leave the run alone.
	endPause = 5 * time.Second
)

// EndRun ends a run in a sandbox. A run that the sandbox does not know has ended.
func (c *Core) EndRun(ctx context.Context, s *ledger.Sandbox, r Run) error {
	x, h, err := c.On(s)
	if err != nil {
		return err
	}
	err = x.EndExec(ctx, h, r.ID, r.User)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil
	}
	return err
}

// EndRunSoon begins to end a run in the background. It does nothing while an earlier call for it is under way.
func (c *Core) EndRunSoon(r Run) {
	key := r.SandboxID + "/" + r.ID
	if _, already := c.ending.LoadOrStore(key, nil); already {
		return
	}
	begun := c.Background(func() {
		defer c.ending.Delete(key)
		if err := c.endRecorded(r); err != nil && c.life.Err() == nil {
			c.log.Warn("lifecycle: ending a command; will retry", r.About, "run", r.ID, "error", err)
		}
		select {
		case <-time.After(endPause):
		case <-c.life.Done():
		}
	})
	if !begun {
		c.ending.Delete(key)
	}
}

func (c *Core) endRecorded(r Run) error {
	ctx, cancel := context.WithTimeout(c.life, endLimit)
	defer cancel()
	var s *ledger.Sandbox
	err := c.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		s, err = MustSandbox(tx, r.SandboxID)
		return err
	})
	if err != nil {
		return err
	}
	return c.EndRun(ctx, s, r)
}
