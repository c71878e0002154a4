//go:build linux

package output

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// DiskLimit and MemoryLimit limit what is kept of one stream of a command, in bytes.
	DiskLimit   = 16 << 20
	MemoryLimit = 1 << 20
)

// Stream keeps the start of a stream and counts all of it.
type Stream struct {
	File  *os.File
	limit int64

	mu    sync.Mutex // guards what follows
	total int64
	kept  int64
	full  bool
}

// NewStream creates a stream, on disk or in memory.
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

// NamelessFile creates a file without a name: on the workspace's disk, which the sandbox owns, or in memory
// if that fails.
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

// Write never fails: readers also get what cannot be kept.
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

// Counts returns how much was written, and whether part of it was not kept.
func (s *Stream) Counts() (total int64, dropped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total, s.full
}
