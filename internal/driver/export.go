package driver

import (
	"context"
	"io"
)

// Exporter reads the data that a sandbox keeps.
type Exporter interface {
	// Export returns a tar stream of the sandbox's /data with names relative to /data. The sandbox may be
	// awake, paused or stopped.
	//
	// The archive is consistent, because no code of the sandbox runs during the read: an awake sandbox is
	// frozen until the stream was read to its end or is closed. Until then other calls for this sandbox may
	// wait, or find it paused. If another caller wakes the sandbox before the end, the stream ends with
	// Conflict. A caller that dies leaves the sandbox frozen; Wake thaws it.
	//
	// ctx bounds the stream. An incomplete stream ends with an error other than io.EOF. Close returns the
	// error of thawing the sandbox. Errors: NotFound, Failed.
	Export(ctx context.Context, h Handle) (io.ReadCloser, error)
}

// DiskReader is an Executor that reads files of sandboxes in which no code runs.
type DiskReader interface {
	// ReadDisk returns a file or directory of a paused or stopped sandbox as a tar stream, with names relative to the
	// parent of the path. It needs nothing from the sandbox, and does not follow a link at the end of the path. ctx
	// bounds the stream. Errors: NotFound, with ReasonFileNotFound if only the path is missing; Conflict with
	// ReasonInvalidState if the sandbox runs; Failed.
	ReadDisk(ctx context.Context, h Handle, path string) (io.ReadCloser, error)
}
