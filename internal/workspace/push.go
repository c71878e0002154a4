package workspace

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// PushWorkspace implements service.Workspaces.
func (v *Service) PushWorkspace(ctx context.Context, r sandbox.LeaseRef) (pushed sandbox.WorkspacePushed, err error) {
	began, err := v.began(ctx, r)
	if err != nil {
		return pushed, err
	}
	var (
		spec      sandbox.EnvironmentSpec
		sealed    []ledger.EnvironmentSecret
		sandboxID string
	)
	err = v.Store.Read(ctx, func(tx *ledger.Tx) error {
		s, err := tx.Current(r.ID)
		if err != nil || s == nil {
			return err
		}
		env, err := tx.KnownEnvironment(s.EnvironmentID)
		if err != nil {
			return err
		}
		sandboxID, spec = s.ID, env.Spec.WithDefaults()
		sealed, err = tx.Secrets(s.EnvironmentID)
		return err
	})
	if err != nil {
		return pushed, err
	}
	w := spec.Workspace
	switch {
	case w == nil || w.Git == nil || w.Git.URL != began.URL:
		return pushed, sandbox.Errorf(sandbox.Conflict, "lease %s: pushing its workspace: its environment does not have the "+
			"repository %s any more", r.ID, began.URL).WithReason(sandbox.ReasonInvalidState)
	case w.PushPrefix == "":
		return pushed, sandbox.Errorf(sandbox.Conflict, "lease %s: pushing its workspace: set push_prefix of its "+
			"environment's workspace to allow it", r.ID).WithReason(sandbox.ReasonInvalidState)
	case v.Mirrors == nil:
		return pushed, sandbox.Errorf(sandbox.Conflict, "lease %s: pushing its workspace: %s", r.ID,
			v.Mirrors.Check(began.URL))
	}
	source, err := v.sourceOf(w.Git, sealed)
	if err != nil {
		return pushed, err
	}
	collected, err := v.collect(ctx, r, began)
	if err != nil {
		return pushed, err
	}
	defer collected.Close()
	pushed = sandbox.WorkspacePushed{URL: began.URL, Branch: w.PushPrefix + began.Branch, Commit: collected.Tip.String()}
	if err := v.Mirrors.Push(ctx, source, collected, pushed.Branch); err != nil {
		return sandbox.WorkspacePushed{}, sandbox.Errorf(sandbox.CodeOf(err), "lease %s: pushing its workspace to %s: %w",
			r.ID, began.URL, err).WithReason(sandbox.ReasonOf(err))
	}
	err = v.Store.Write(ctx, func(tx *ledger.Tx) error {
		return tx.Update(sandboxID, func(s *ledger.Sandbox) error {
			return tx.AppendSandboxEvent(s, sandbox.EventWorkspacePushed, pushed)
		})
	})
	return pushed, err
}
