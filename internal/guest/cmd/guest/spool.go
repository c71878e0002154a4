//go:build linux

package main

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

const (
	// diskLimit and memoryLimit bound what is kept of one stream of a command, in bytes.
	diskLimit   = 16 << 20
	memoryLimit = 1 << 20
)

// spool is what is kept of a command's output while it runs: by its helper, which writes it, and by
// process 1, which lends it to readers.
type spool struct {
	stdout, stderr *spoolStream
	conn           *net.UnixConn // to process 1
}

// openSpool has process 1 keep a command. Errors: errTaken; others mean that it cannot be kept, and may
// be run all the same.
func openSpool(id string) (*spool, error) {
	stdout, err := newSpoolStream()
	if err != nil {
		return nil, err
	}
	stderr, err := newSpoolStream()
	if err != nil {
		return nil, errors.Join(err, stdout.file.Close())
	}
	s := &spool{stdout: stdout, stderr: stderr}
	if s.conn, _, _, err = askKeeper(keeperMessage{Keep: id}, stdout.file, stderr.file); err != nil {
		closeAll([]*os.File{stdout.file, stderr.file})
		return nil, err
	}
	return s, nil
}

// end tells process 1 how the command ended.
func (s *spool) end(r wire.Result) { tellEnd(s.conn, r) }

// tellEnd tells process 1 how what it keeps has ended.
func tellEnd(conn *net.UnixConn, r wire.Result) {
	_ = send(conn, keeperMessage{Result: &r}) // process 1 ends with the sandbox only
	_ = conn.Close()                          // so does what nobody has read
}

// spoolStream takes the beginning of a stream, and counts all of it.
type spoolStream struct {
	file  *os.File
	limit int64

	mu    sync.Mutex // guards what follows
	total int64
	kept  int64
	full  bool
}

// newSpoolStream makes a stream that keeps as much as there is room for.
func newSpoolStream() (*spoolStream, error) {
	file, onDisk, err := namelessFile()
	if err != nil {
		return nil, err
	}
	limit := int64(memoryLimit)
	if onDisk {
		limit = diskLimit
	}
	return &spoolStream{file: file, limit: limit}, nil
}

// namelessFile makes a file without a name: on the disk of the workspace, whose room is the sandbox's own,
// or in its memory where that cannot be.
func namelessFile() (file *os.File, onDisk bool, err error) {
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

// Write never fails: what cannot be kept is still passed on to whoever listens.
func (s *spoolStream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total += int64(len(p))
	if s.full {
		return len(p), nil
	}
	n, err := s.file.WriteAt(p[:min(int64(len(p)), s.limit-s.kept)], s.kept)
	s.kept += int64(n)
	s.full = err != nil || n < len(p)
	return len(p), nil
}

// counts returns how much was written, and whether not all of it is kept.
func (s *spoolStream) counts() (total int64, dropped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total, s.full
}

// tee passes what a command writes to what is kept of it and to a reader, until that has gone.
type tee struct {
	kept *spoolStream
	live io.Writer
	gone bool
}

// Write never fails: a command goes on when nobody reads.
func (t *tee) Write(p []byte) (int, error) {
	_, _ = t.kept.Write(p) // never fails
	if !t.gone {
		_, err := t.live.Write(p)
		t.gone = err != nil
	}
	return len(p), nil
}
