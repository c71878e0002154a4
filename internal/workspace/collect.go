package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gitmirror"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// CollectWorkspace implements service.Workspaces. It reads the repository of the sandbox as data: it runs no program of
// the sandbox, and no git program.
func (v *Service) CollectWorkspace(ctx context.Context, r sandbox.LeaseRef,
	form sandbox.WorkspaceForm) (io.ReadCloser, error) {
	if err := form.Validate(); err != nil {
		return nil, err
	}
	s, ended, err := v.ended(ctx, r)
	if err != nil {
		return nil, err
	}
	if ended != nil {
		return v.kept(ctx, s, form, ended)
	}
	began, err := v.began(ctx, r)
	if err != nil {
		return nil, err
	}
	collected, err := v.collect(ctx, r, began)
	if err != nil {
		return nil, err
	}
	defer collected.Close()
	f, err := os.CreateTemp("", "sandbox-workspace-*")
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "lease %s: collecting its workspace: %w", r.ID, err)
	}
	out := temporary{f}
	if form == sandbox.WorkspaceBundle {
		err = collected.Bundle(f)
	} else {
		err = collected.Diff(ctx, f)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(collectError(r, err), out.Close())
	}
	return out, nil
}

// temporary is a file that Close removes.
type temporary struct{ *os.File }

func (t temporary) Close() error {
	return errors.Join(t.File.Close(), os.Remove(t.Name()))
}

// collectError returns the error of a collection with the code of its cause. An Internal error comes from this
// machine's disk, so it becomes Unavailable.
func collectError(r sandbox.LeaseRef, cause error) error {
	code := sandbox.CodeOf(cause)
	if code == sandbox.Internal {
		code = sandbox.Unavailable // this machine's disk
	}
	return sandbox.Errorf(code, "lease %s: collecting its workspace: %w", r.ID, cause).WithReason(sandbox.ReasonOf(cause))
}

// began returns the initial state of a lease's workspace. Errors: NotFound if there is none.
func (v *Service) began(ctx context.Context, r sandbox.LeaseRef) (ready sandbox.WorkspaceReady, err error) {
	err = v.Store.Read(ctx, func(tx *ledger.Tx) error {
		s, err := tx.Current(r.ID)
		if err != nil {
			return err
		}
		if s == nil {
			return sandbox.Errorf(sandbox.NotFound, "there is no lease %s", r.ID)
		}
		began, err := beganIn(tx, s.ID)
		if err == nil && began == nil {
			err = sandbox.Errorf(sandbox.NotFound, "lease %s: its sandbox began without a workspace: set workspace of "+
				"environment %s, and lease again", r.ID, s.EnvironmentID)
		}
		if err == nil {
			ready = *began
		}
		return err
	})
	return ready, err
}

// lastEvent decodes the data of the last event of a type, and reports whether there is one.
func lastEvent(tx *ledger.Tx, sandboxID string, t sandbox.EventType, data any) (bool, error) {
	events, err := tx.Events(sandbox.EventFilter{SandboxID: sandboxID, Type: string(t), Limit: 1, Latest: true})
	if err != nil || len(events) == 0 {
		return false, err
	}
	return true, json.Unmarshal(events[0].Data, data)
}

// ended returns the sandbox of the generation that a request names, and the error that says how it ended, nil if the
// lease is live. It fails if the request names another owner or a generation that never existed.
func (v *Service) ended(ctx context.Context, r sandbox.LeaseRef) (s *ledger.Sandbox, end error, err error) {
	err = v.Store.Read(ctx, func(tx *ledger.Tx) error {
		current, held, err := lifecycle.CurrentOf(tx, r.ID)
		if err != nil {
			return err
		}
		s = current
		if r.Generation != 0 && r.Generation != current.Generation {
			if s, err = tx.SandboxOf(r.ID, r.Generation); err != nil {
				return err
			}
			if s == nil {
				s = current
			}
			held = 0
		}
		if err := lifecycle.CheckRef(s, r); err != nil {
			return err
		}
		if !s.Live(held, tx.Now) {
			end = lifecycle.ErrEnded(s, held, tx.Now)
		}
		return nil
	})
	return s, end, err
}

// collect reads the repository out of the sandbox.
func (v *Service) collect(ctx context.Context, r sandbox.LeaseRef,
	began sandbox.WorkspaceReady) (*gitmirror.Collected, error) {
	u, err := v.Core.BeginUse(ctx, r, lifecycle.ClaimTTL, nil)
	if err != nil {
		return nil, err
	}
	x, h := u.On()
	stream, cause := x.CopyFrom(ctx, h, path.Join(began.Path, ".git"))
	var collected *gitmirror.Collected
	if cause == nil {
		collected, cause = gitmirror.Collect(ctx, stream, began.Branch, began.Commit, v.Limits)
		_ = stream.Close() // only read
	}
	if err := u.Leave(ctx, cause == nil, nil); err != nil {
		cause = err
	} else if cause != nil {
		cause = collectError(r, u.Explain(ctx, cause))
	}
	if cause != nil && collected != nil {
		collected.Close()
	}
	if cause != nil {
		return nil, cause
	}
	return collected, nil
}
