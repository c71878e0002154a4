package driver

import (
	"context"
	"io"
)

// Exporter reads what a sandbox keeps.
type Exporter interface {
	// Export returns a tar stream of the sandbox's /data, with names relative to /data, in whatever
	// state it is: awake, paused, stopped.
	//
	// No code of the sandbox runs while it is read, so the archive is one moment's: an awake sandbox
	// is frozen for it, and goes on when the stream was read to its end, or is closed. Until then
	// other calls for this sandbox may wait, or find it paused. If it runs after all before the end,
	// because another caller wakes it, the stream ends with Conflict. A caller that dies in between
	// leaves the sandbox frozen: Wake thaws it.
	//
	// ctx bounds the stream. A stream that is not complete ends with an error that is not io.EOF.
	// Close returns the error of letting the sandbox go on. Errors: NotFound, Failed.
	Export(ctx context.Context, h Handle) (io.ReadCloser, error)
}
