package service

import (
	"context"
	"io"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Files moves files into and out of a lease's sandbox. It wakes the sandbox, and every call counts as
// activity. Errors of all: as Execs.Exec except UnknownOutcome, and those of FileAccess.
type Files interface {
	// WriteFiles unpacks a tar stream under dir. ReadFiles returns a path as a tar stream. See Runner.
	WriteFiles(ctx context.Context, r sandbox.LeaseRef, dir string, tar io.Reader) error
	ReadFiles(ctx context.Context, r sandbox.LeaseRef, path string) (io.ReadCloser, error)
	// ReadFile returns the content of a regular file. Errors: Invalid if it is not a regular file, or too
	// large.
	ReadFile(ctx context.Context, r sandbox.LeaseRef, f sandbox.FileRead) (sandbox.FileContent, error)
	// WriteFile, StatFile, ListFiles and RemoveFile work as in FileAccess.
	WriteFile(ctx context.Context, r sandbox.LeaseRef, w sandbox.FileWrite, content io.Reader) error
	StatFile(ctx context.Context, r sandbox.LeaseRef, path string) (sandbox.FileInfo, error)
	ListFiles(ctx context.Context, r sandbox.LeaseRef, q sandbox.FileQuery) ([]sandbox.FileInfo, error)
	RemoveFile(ctx context.Context, r sandbox.LeaseRef, f sandbox.FileRemoval) error
}
