package driver

import (
	"context"
	"io"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// FileAccess works on single files of an awake sandbox. Paths are in Roots. A link in a path is followed while it stays
// in its root, whatever the sandbox's processes do meanwhile; otherwise the error is Invalid. Requests are normalized.
// Errors of all methods: as for Runner.Exec; NotFound with ReasonFileNotFound.
type FileAccess interface {
	// StatFile describes the file at path.
	StatFile(ctx context.Context, h Handle, path string) (sandbox.FileInfo, error)
	// ListFiles lists a directory, sorted by name in byte order. Errors: Invalid if path is not a directory.
	ListFiles(ctx context.Context, h Handle, q sandbox.FileQuery) ([]sandbox.FileInfo, error)
	// WriteFile writes a file atomically. It replaces an existing file or link and creates parent directories. If reading
	// content fails, it keeps the old file and returns that error. Errors: Invalid if path is a directory.
	WriteFile(ctx context.Context, h Handle, w sandbox.FileWrite, content io.Reader) error
	// RemoveFile removes a file, a link (without following it) or a directory. Errors: Conflict if a
	// directory is not empty, unless Recursive.
	RemoveFile(ctx context.Context, h Handle, r sandbox.FileRemoval) error
	// DiskUsage returns the disk use of the files in Roots.
	DiskUsage(ctx context.Context, h Handle) (sandbox.DiskUsage, error)
}
