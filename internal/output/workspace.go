package output

import (
	"context"
	"io"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/bucketobjects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// MaxWorkspace returns the largest form of a workspace that is kept, in bytes. A lease then has room for a bundle and a
// diff.
func (v *Service) MaxWorkspace() int64 { return min(sandbox.MaxKeptWorkspace, v.Bounds.Lease/2) }

// errNoWorkspaceStore means that no store is configured for the workspaces of ended leases.
var errNoWorkspaceStore = &sandbox.Error{Code: sandbox.Unavailable,
	Message: "this service has no bucket for workspaces of ended leases: name one that all its replicas reach " +
		"(sandbox serve --state-url, or state_url of the provider)"}

// StoreWorkspace stores a form of the workspace of an ended lease. Unless KeepWorkspace follows within unpublishedFor,
// it is deleted again. Errors: Unavailable.
func (v *Service) StoreWorkspace(ctx context.Context, sandboxID string, form sandbox.WorkspaceForm,
	content io.Reader) error {
	if !v.KeepsMore() {
		return errNoWorkspaceStore
	}
	object := execs.WorkspaceObject(sandboxID, form)
	err := v.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		return bucketobjects.In(tx).MarkForDeletion(object, tx.Now.Add(micro.SpanOf(unpublishedFor)))
	})
	if err != nil {
		return err
	}
	return v.Objects.Put(ctx, object, content)
}

// KeepWorkspace publishes what StoreWorkspace has stored, and drops the oldest output if that is too much.
func (v *Service) KeepWorkspace(tx *ledger.Tx, s *ledger.Sandbox, form sandbox.WorkspaceForm, bytes int64) error {
	if err := execs.In(tx).KeepWorkspace(s, form, bytes); err != nil {
		return err
	}
	return v.BoundGrown(tx)
}

// OpenWorkspace returns a kept form of a workspace. Errors: Unavailable.
func (v *Service) OpenWorkspace(ctx context.Context, sandboxID string,
	form sandbox.WorkspaceForm) (io.ReadCloser, error) {
	if !v.KeepsMore() {
		return nil, errNoWorkspaceStore
	}
	r, err := v.Objects.Open(ctx, execs.WorkspaceObject(sandboxID, form), 0)
	return r, lifecycle.AsError(err)
}
