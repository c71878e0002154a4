//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/output"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// forever is the timeout of a process: the sandbox ends before.
const forever = time.Duration(math.MaxInt64)

// runProcess runs a process to its end. Nothing of what it writes goes to whoever started it: its log is
// kept, and read by followers.
func runProcess(c command) wire.Result {
	log, err := output.NewRing()
	if err != nil {
		return wire.Result{Problem: wire.ProblemFailed, Message: "make a log: " + err.Error()}
	}
	none, _, err := output.NamelessFile()
	if err != nil {
		return wire.Result{Problem: wire.ProblemFailed, Message: "make a log: " + err.Error()}
	}
	conn, _, _, err := askKeeper(keeperMessage{Keep: c.id, Ring: true}, log.File, none)
	if errors.Is(err, errTaken) {
		return wire.Result{Problem: wire.ProblemConflict, Message: err.Error()}
	}
	if err != nil {
		return wire.Result{Problem: wire.ProblemFailed, Message: "have process 1 keep the log: " + err.Error()}
	}
	c.timeout = forever
	r := runCommand(c, log, nil)
	r.StdoutBytes, r.Dropped = log.Counts()
	tellEnd(conn, r)
	return r
}

// portPause is how often a port is tried again that nobody listens to.
const portPause = 50 * time.Millisecond

// awaitPort returns once somebody listens to a port. It ends early when standard input does: then nobody
// waits any more.
func awaitPort(port int) error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	dialer := net.Dialer{Timeout: time.Second}
	for {
		conn, err := dialer.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("port %d: nobody waits for it any more: %w", port, err)
		case <-time.After(portPause):
		}
	}
}
