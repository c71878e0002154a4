//go:build linux

package files

import (
	"context"
	"io"
	"math"
	"sync"
	"time"
)

// Space bounds what file operations add to the disk. Process 1 measures the disk, and ends programs that exceed its
// limit. File operations write at most what was left at the last measurement, and then wait for the next one.
type Space struct {
	mu       sync.Mutex
	left     int64         // bytes
	taken    int64         // bytes since the last measurement: the next one may have begun before they were written
	exact    bool          // the last measurement has seen all that was taken
	measured chan struct{} // closed by the next measurement
}

// NewSpace returns a space without a limit until the first measurement.
func NewSpace() *Space { return &Space{left: math.MaxInt64, measured: make(chan struct{})} }

// Measured says how many bytes were left when the disk was measured, less than 0 if the limit was exceeded.
func (s *Space) Measured(left int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left, s.exact, s.taken = left-s.taken, s.taken == 0, 0
	close(s.measured)
	s.measured = make(chan struct{})
}

// measureLimit is longer than the pause between two measurements while an operation writes.
const measureLimit = 10 * time.Second

// take reserves bytes before they are written. A nil space has no limit.
func (s *Space) take(ctx context.Context, bytes int64) error {
	if s == nil {
		return nil
	}
	taken, measured, _ := s.tryTake(bytes)
	if taken {
		return nil
	}
	limit := time.NewTimer(measureLimit)
	defer limit.Stop()
	for full := false; !full; {
		select {
		case <-measured:
		case <-limit.C:
			full = true
		case <-ctx.Done():
			return ctx.Err()
		}
		var exact bool
		if taken, measured, exact = s.tryTake(bytes); taken {
			return nil
		}
		full = full || exact
	}
	return refuse("disk_exceeded: /workspace and /data have reached the disk limit of the sandbox: remove files, or " +
		"raise disk_mb")
}

func (s *Space) tryTake(bytes int64) (taken bool, measured <-chan struct{}, exact bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left < bytes {
		return false, s.measured, s.exact
	}
	s.left, s.taken = s.left-bytes, s.taken+bytes
	return true, nil, false
}

// entrySize is the least that a file or a directory takes on most disks, in bytes.
const entrySize = 4 << 10

// bounded is a file whose writes take space first.
type bounded struct {
	ctx   context.Context //nolint:containedctx // io.Writer has no context parameter
	space *Space
	to    io.Writer
}

func (b bounded) Write(p []byte) (int, error) {
	if err := b.space.take(b.ctx, int64(len(p))); err != nil {
		return 0, err
	}
	return b.to.Write(p)
}
