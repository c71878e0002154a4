//go:build linux

package main

import (
	"errors"
	"io"
	"net"
	"os"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/output"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// spool is what is kept of a command's output while it runs: by its helper, which writes it, and by
// process 1, which lends it to readers.
type spool struct {
	stdout, stderr *output.Stream
	conn           *net.UnixConn // to process 1
}

// openSpool has process 1 keep a command. Errors: errTaken; others mean that it cannot be kept, and may
// be run all the same.
func openSpool(id string) (*spool, error) {
	stdout, err := output.NewStream()
	if err != nil {
		return nil, err
	}
	stderr, err := output.NewStream()
	if err != nil {
		return nil, errors.Join(err, stdout.File.Close())
	}
	s := &spool{stdout: stdout, stderr: stderr}
	if s.conn, _, _, err = askKeeper(keeperMessage{Keep: id}, stdout.File, stderr.File); err != nil {
		closeAll([]*os.File{stdout.File, stderr.File})
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

// tee passes what a command writes to what is kept of it and to a reader, until that has gone.
type tee struct {
	kept *output.Stream
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
