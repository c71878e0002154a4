//go:build linux

package output

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// DiskLimit and MemoryLimit bound what is kept of one stream of a command, in bytes.
	DiskLimit   = 16 << 20
	MemoryLimit = 1 << 20
)

// Stream takes the beginning of a stream, and Counts all of it.
type Stream struct {
	File  *os.File
	limit int64

	mu    sync.Mutex // guards what follows
	total int64
	kept  int64
	full  bool
}

// NewStream makes a stream that keeps as much as there is room for.
func NewStream() (*Stream, error) {
	file, onDisk, err := NamelessFile()
	if err != nil {
		return nil, err
	}
	limit := int64(MemoryLimit)
	if onDisk {
		limit = DiskLimit
	}
	return &Stream{File: file, limit: limit}, nil
}

// NamelessFile makes a file without a name: on the disk of the workspace, whose room is the sandbox's own,
// or in its memory where that cannot be.
func NamelessFile() (file *os.File, onDisk bool, err error) {
	fd, err := unix.Open("/workspace", unix.O_TMPFILE|unix.O_RDWR|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	onDisk = err == nil
	if err != nil {
		fd, err = unix.MemfdCreate("stream", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, false, err
	}
	return os.NewFile(uintptr(fd), "stream"), onDisk, nil
}

// Write never fails: what cannot be kept still reaches the readers.
func (s *Stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total += int64(len(p))
	if s.full {
		return len(p), nil
	}
	n, err := s.File.WriteAt(p[:min(int64(len(p)), s.limit-s.kept)], s.kept)
	s.kept += int64(n)
	s.full = err != nil || n < len(p)
	return len(p), nil
}

// Counts returns how much was written, and whether not all of it is kept.
func (s *Stream) Counts() (total int64, dropped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total, s.full
}
