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

// CollectWorkspace implements service.Workspaces. The repository of the sandbox is read as data; no program of the
// sandbox is run, and none of git.
func (v *Service) CollectWorkspace(ctx context.Context, r sandbox.LeaseRef,
	form sandbox.WorkspaceForm) (io.ReadCloser, error) {
	if err := form.Validate(); err != nil {
		return nil, err
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

// temporary is a file that ends with its reader.
type temporary struct{ *os.File }

func (t temporary) Close() error {
	return errors.Join(t.File.Close(), os.Remove(t.Name()))
}

// collectError is an error of a collection. What the sandbox has is the lease's, so it is Failed, and never of the
// sandbox itself.
func collectError(r sandbox.LeaseRef, cause error) error {
	code := sandbox.CodeOf(cause)
	if code == sandbox.Internal {
		code = sandbox.Unavailable // this machine's disk
	}
	return sandbox.Errorf(code, "lease %s: collecting its workspace: %w", r.ID, cause).WithReason(sandbox.ReasonOf(cause))
}

// began returns what the workspace of a lease's generation began with. Errors: NotFound if there is none.
func (v *Service) began(ctx context.Context, r sandbox.LeaseRef) (ready sandbox.WorkspaceReady, err error) {
	err = v.Store.Read(ctx, func(tx *ledger.Tx) error {
		s, err := tx.Current(r.ID)
		if err != nil {
			return err
		}
		if s == nil {
			return sandbox.Errorf(sandbox.NotFound, "there is no lease %s", r.ID)
		}
		events, err := tx.Events(sandbox.EventFilter{SandboxID: s.ID, Type: string(sandbox.EventWorkspaceReady), Limit: 1,
			Latest: true})
		if err != nil {
			return err
		}
		if len(events) == 0 {
			return sandbox.Errorf(sandbox.NotFound, "lease %s: its sandbox began without a workspace: set workspace of "+
				"environment %s, and lease again", r.ID, s.EnvironmentID)
		}
		return json.Unmarshal(events[0].Data, &ready)
	})
	return ready, err
}

// collect reads the repository out of the sandbox.
func (v *Service) collect(ctx context.Context, r sandbox.LeaseRef,
	began sandbox.WorkspaceReady) (*gitmirror.Collected, error) {
	u, err := v.Core.Hold(ctx, r, lifecycle.ClaimTTL, nil)
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
