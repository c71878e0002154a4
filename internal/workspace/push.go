package workspace

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/sealedsecrets"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gitmirror"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// pushing has the data for a push of a sandbox's workspace.
type pushing struct {
	leaseID, sandboxID string
	workspace          *sandbox.Workspace
	sealed             []sealedsecrets.Secret
}

// pushingOf reads the data for a push.
func pushingOf(tx *ledger.Tx, s *ledger.Sandbox) (p pushing, err error) {
	env, err := tx.KnownEnvironment(s.EnvironmentID)
	if err != nil {
		return p, err
	}
	p = pushing{leaseID: s.Lease(), sandboxID: s.ID, workspace: env.Spec.WithDefaults().Workspace}
	p.sealed, err = sealedsecrets.In(tx).Of(s.EnvironmentID)
	return p, err
}

// PushWorkspace implements service.Workspaces.
func (v *Service) PushWorkspace(ctx context.Context, r sandbox.LeaseRef) (pushed sandbox.WorkspacePushed, err error) {
	began, err := v.began(ctx, r)
	if err != nil {
		return pushed, err
	}
	var p pushing
	err = v.Store.Read(ctx, func(tx *ledger.Tx) error {
		s, err := tx.Current(r.ID)
		if err == nil && s != nil {
			p, err = pushingOf(tx, s)
		}
		return err
	})
	if err != nil {
		return pushed, err
	}
	if err := v.mayPush(p, began); err != nil {
		return pushed, err
	}
	collected, err := v.collect(ctx, r, began)
	if err != nil {
		return pushed, err
	}
	defer collected.Close()
	return v.push(ctx, p, began, collected)
}

// mayPush returns why a push is not possible, nil if it is. Errors: Conflict.
func (v *Service) mayPush(p pushing, began sandbox.WorkspaceReady) error {
	w := p.workspace
	bad := func(format string, args ...any) error {
		why := sandbox.Errorf(sandbox.Conflict, format, args...)
		return sandbox.Errorf(sandbox.Conflict, "lease %s: pushing its workspace: %w", p.leaseID, why).
			WithReason(sandbox.ReasonInvalidState)
	}
	switch {
	case w == nil || w.Git == nil || w.Git.URL != began.URL:
		return bad("its environment does not have the repository %s any more", began.URL)
	case w.Git.IsLocal():
		return bad("its repository is on the reconciler's machine and is only read: read the commits as a bundle")
	case w.PushPrefix == "":
		return bad("set push_prefix of its environment's workspace to allow it")
	case v.Mirrors == nil:
		return bad("%s", v.Mirrors.Check(began.URL))
	}
	return nil
}

// push pushes the collected commits, and records the push.
func (v *Service) push(ctx context.Context, p pushing, began sandbox.WorkspaceReady,
	collected *gitmirror.Collected) (pushed sandbox.WorkspacePushed, err error) {
	if err := v.mayPush(p, began); err != nil {
		return pushed, err
	}
	source, err := v.sourceOf(p.workspace.Git, p.sealed)
	if err != nil {
		return pushed, err
	}
	pushed = sandbox.WorkspacePushed{URL: began.URL, Branch: p.workspace.PushPrefix + began.Branch,
		Commit: collected.Tip.String()}
	if err := v.Mirrors.Push(ctx, source, collected, pushed.Branch); err != nil {
		return sandbox.WorkspacePushed{}, sandbox.Errorf(sandbox.CodeOf(err), "lease %s: pushing its workspace to %s: %w",
			p.leaseID, began.URL, err).WithReason(sandbox.ReasonOf(err))
	}
	err = v.Store.Write(ctx, func(tx *ledger.Tx) error {
		return tx.Update(p.sandboxID, func(s *ledger.Sandbox) error {
			return tx.AppendSandboxEvent(s, sandbox.EventWorkspacePushed, pushed)
		})
	})
	return pushed, err
}
