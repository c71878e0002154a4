//go:build linux

package main

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// followPause is how often a reader looks for more output.
const followPause = 10 * time.Millisecond

// runFollow sends what a command has written after the given offsets, and goes on until it ends. It
// ends early when standard input does: then nobody reads any more; or, with now, at once.
func runFollow(id string, offsets [2]int64, now bool, out *wire.Writer) wire.Result {
	conn, files, err := askKeeper(keeperMessage{Follow: id})
	if err == nil && len(files) != 2 {
		err = errUnknown
	}
	if err != nil {
		r := wire.Result{Problem: wire.ProblemFailed, Message: err.Error()}
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
	go func() { // ends with the command
		m, _, err := receive(conn)
		if err != nil || m.Result == nil {
			m.Result = &wire.Result{Problem: wire.ProblemFailed, Message: "process 1 does not tell how the command ended"}
		}
		end <- *m.Result
	}()
	streams := [2]io.Writer{out.Stdout(), out.Stderr()}
	copyNew := func() error {
		for i, f := range files {
			n, err := io.Copy(streams[i], io.NewSectionReader(f, offsets[i], diskLimit))
			offsets[i] += n
			if err != nil {
				return err
			}
		}
		return nil
	}
	pause := followPause
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
		if err := copyNew(); err != nil {
			return wire.Result{Problem: wire.ProblemFailed, Message: err.Error()}
		}
		switch {
		case now:
			return wire.Result{}
		case r != nil:
			return *r
		}
	}
}
