package service

import (
	"context"
	"io"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Workspaces reads workspaces out of sandboxes.
type Workspaces interface {
	// CollectWorkspace returns the commits on the branch of a lease's workspace since the lease began. It wakes the
	// sandbox and counts as activity. The caller closes the stream. Errors: those of Files; NotFound if there is no
	// workspace or no such branch; Conflict if a bundle would be empty; Failed if the repository cannot be used.
	CollectWorkspace(ctx context.Context, r sandbox.LeaseRef, form sandbox.WorkspaceForm) (io.ReadCloser, error)
	// PushWorkspace pushes the branch of a lease's workspace to its repository, under the environment's push_prefix. It
	// creates the branch or moves it forward, and never overwrites commits. Pushing again changes nothing. Errors: those
	// of CollectWorkspace; Conflict if there is no push_prefix, the environment has another repository by now, or the
	// branch has other commits.
	PushWorkspace(ctx context.Context, r sandbox.LeaseRef) (sandbox.WorkspacePushed, error)
}
