package commands

import (
	"context"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// beginLimit bounds the wait for a detached command to begin. It is longer than the claim of a process that died
	// before it began the command, plus the time until another process takes the command over.
	beginLimit = 30 * time.Second
	// beginPause is the first pause between two requests to a sandbox, maxBeginPause the longest.
	beginPause, maxBeginPause = 5 * time.Millisecond, 200 * time.Millisecond
)

// awaitBegun returns once the sandbox of a detached command knows the command, or the command has ended. From then on
// the command survives the death of this process. It does not wait for a sandbox that sleeps, nor for one without a
// channel, because each question is expensive there.
func (v *Service) awaitBegun(ctx context.Context, r sandbox.ExecRef) error {
	limited, cancel := context.WithTimeout(ctx, beginLimit)
	defer cancel()
	for pause := beginPause; ; pause = min(2*pause, maxBeginPause) {
		x, err := v.readExecRow(ctx, r)
		if err != nil || x.State != sandbox.ExecRunning {
			return err
		}
		known, err := v.knows(limited, x)
		if err == nil && !known {
			err = v.Core.Pause(limited, nil, micro.At(v.Store.Now().Add(pause)))
		}
		switch {
		case known:
			return err
		case ctx.Err() != nil:
			return sandbox.Errorf(sandbox.Timeout, "lease %s: command %s is recorded, and its sandbox has not begun it yet: "+
				"%w; a reconciler goes on with it: ask for the command by its id", r.LeaseID, r.ID, ctx.Err())
		case limited.Err() != nil:
			return nil
		case err != nil:
			return err
		}
	}
}

// knows reports whether a sandbox knows a command, or cannot tell. If the sandbox is out of reach, it may answer later.
func (v *Service) knows(ctx context.Context, x *execs.Exec) (bool, error) {
	var s *ledger.Sandbox
	err := v.Store.Read(ctx, func(tx *ledger.Tx) (err error) {
		s, err = lifecycle.MustSandbox(tx, x.SandboxID)
		return err
	})
	if err != nil {
		return false, err
	}
	backend, h, err := v.Core.On(s)
	if err != nil || !backend.Capabilities().Channel {
		return true, err
	}
	look := sandbox.Replay{ID: x.ID, Now: true, StdoutOffset: sandbox.MaxKeptOutput, StderrOffset: sandbox.MaxKeptOutput}
	_, err = backend.Follow(ctx, h, look)
	return !sandbox.IsRetryable(err) && sandbox.ReasonOf(err) != sandbox.ReasonExecNotFound, nil
}
