//go:build linux

package main

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/output"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// followPause is how often a reader looks for more output, logPause how often one of a log does, which may
// do so for days.
const (
	followPause = 10 * time.Millisecond
	logPause    = 50 * time.Millisecond
)

// follow asks for what a command has written, and for its end.
type follow struct {
	id string
	// offsets are where to begin with its streams. now: what is there is wanted, and no more. quiet: only
	// the end is.
	offsets    [2]int64
	now, quiet bool
}

// runFollow sends what a command has written, and goes on until it ends. It ends early when standard input
// does: then nobody reads any more.
func runFollow(f follow, out *wire.Writer) wire.Result {
	conn, answer, files, err := askKeeper(keeperMessage{Follow: f.id})
	if err == nil && len(files) != 2 {
		err = errUnknown
	}
	if err != nil {
		r := failure(err)
		if errors.Is(err, errUnknown) {
			r.Problem = wire.ProblemNotFound
		}
		return r
	}
	defer conn.Close()
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	end := make(chan wire.Result, 1)
	go func() { end <- awaitEnd(conn) }() // ends with the command
	switch {
	case f.quiet && f.now:
		return wire.Result{}
	case f.quiet:
		return <-end
	case answer.Ring:
		return sendUntil(end, f.now, logPause, logSender(files[0], f.offsets[0], out))
	default:
		return sendUntil(end, f.now, followPause, outputSender(files, f.offsets, out))
	}
}

func failure(err error) wire.Result {
	return wire.Result{Problem: wire.ProblemFailed, Message: err.Error()}
}

// awaitEnd returns how a command ended, once process 1 says so.
func awaitEnd(conn *net.UnixConn) wire.Result {
	m, _, err := receive(conn)
	if err != nil || m.Result == nil {
		return wire.Result{Problem: wire.ProblemFailed, Message: "process 1 does not tell how the command ended"}
	}
	return *m.Result
}

// sendUntil sends what is new, again and again, until the command has ended and all is sent.
func sendUntil(end <-chan wire.Result, now bool, pause time.Duration, sendNew func() error) wire.Result {
	if now {
		pause = 0
	}
	for {
		var r *wire.Result
		select {
		case result := <-end:
			r = &result
		case <-time.After(pause):
		}
		if err := sendNew(); err != nil {
			return failure(err)
		}
		switch {
		case now:
			return wire.Result{}
		case r != nil:
			return *r
		}
	}
}

// outputSender returns what sends the new output of a command.
func outputSender(files []*os.File, offsets [2]int64, out *wire.Writer) func() error {
	streams := [2]io.Writer{out.Stdout(), out.Stderr()}
	return func() error {
		for i, f := range files {
			n, err := io.Copy(streams[i], io.NewSectionReader(f, offsets[i], output.DiskLimit))
			offsets[i] += n
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// logSender returns what sends the new part of a log, and says where that begins.
func logSender(file *os.File, offset int64, out *wire.Writer) func() error {
	var log *output.RingReader
	stdout := out.Stdout()
	return func() error {
		if log == nil {
			var err error
			if log, err = output.NewRingReader(file, offset); err != nil {
				return err
			}
			if err := log.Begin(); err != nil {
				return err
			}
			if err := out.Begins(log.Next); err != nil {
				return err
			}
		}
		for {
			p, skipped, err := log.Read()
			switch {
			case err != nil:
				return err
			case skipped:
				err = out.Begins(log.Next)
			case len(p) == 0:
				return nil
			default:
				_, err = stdout.Write(p)
			}
			if err != nil {
				return err
			}
		}
	}
}
