package driver

import (
	"context"
	"io"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Filer works on single files of a sandbox that is awake. Paths lie in Roots; a link in a path is
// followed as long as it stays in its root, whatever the sandbox's processes do meanwhile (Invalid).
// Requests are normalized. Errors of all: as Runner.Exec; NotFound with ReasonFileNotFound.
type Filer interface {
	// StatFile describes what lies under a path.
	StatFile(ctx context.Context, h Handle, path string) (sandbox.FileInfo, error)
	// ListFiles returns what a directory holds, by name in the order of bytes. Errors: Invalid when
	// it is no directory.
	ListFiles(ctx context.Context, h Handle, q sandbox.FileQuery) ([]sandbox.FileInfo, error)
	// WriteFile puts content under a path, whole or not at all: it replaces a file or a link, makes
	// the directories above, and leaves what is there when content fails, whose error it returns.
	// Errors: Invalid when a directory is in the way.
	WriteFile(ctx context.Context, h Handle, w sandbox.FileWrite, content io.Reader) error
	// RemoveFile removes a file, a link, which is not followed, or a directory. Errors: Conflict when
	// a directory is not empty, unless Recursive.
	RemoveFile(ctx context.Context, h Handle, r sandbox.FileRemoval) error
	// DiskUsage counts what lies in Roots.
	DiskUsage(ctx context.Context, h Handle) (sandbox.DiskUsage, error)
}
