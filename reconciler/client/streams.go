package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// FollowEvents implements service.Reports. It reconnects after a lost connection without missing events, and fails
// after several attempts in a row without an event.
func (c *Client) FollowEvents(ctx context.Context, f sandbox.EventFilter, yield func(sandbox.Event) error) error {
	f.Limit = 0
	return c.followAgain(ctx, func() int64 { return f.AfterID }, func() (bool, error) {
		return c.followOnce(ctx, &f, yield)
	})
}

// followAgain reconnects after a lost connection, and fails after several attempts in a row without progress. reached
// returns the progress.
func (c *Client) followAgain(ctx context.Context, reached func() int64, once func() (again bool, err error)) error {
	for failures := 0; ; failures++ {
		last := reached()
		again, err := once()
		if reached() > last {
			failures = 0
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !again, failures+1 >= c.attempts:
			return err
		}
		if err := c.retryPause(ctx, failures); err != nil {
			return err
		}
	}
}

// followOnce follows one connection and moves f.AfterID past what was yielded. It reports whether
// another connection may bring more.
func (c *Client) followOnce(ctx context.Context, f *sandbox.EventFilter,
	yield func(sandbox.Event) error) (again bool, err error) {
	return c.readEvents(ctx, eventsPath(*f), func(_, value string) (bool, error) {
		var e sandbox.Event
		if err := json.Unmarshal([]byte(value), &e); err != nil {
			return false, sandbox.Errorf(sandbox.Internal, "reconciler %s: event %q: %w", c.name, value, err)
		}
		if err := yield(e); err != nil {
			return false, err
		}
		f.AfterID = e.ID
		if f.SandboxID != "" {
			f.FromSequence = e.Sequence
		}
		return true, nil
	})
}

// readEvents calls got with the kind and the data of each server-sent event of one connection, until got stops it. It
// reports whether another connection may bring more.
func (c *Client) readEvents(ctx context.Context, path string,
	got func(kind, data string) (more bool, err error)) (again bool, err error) {
	resp, err := c.send(ctx, c.quick, http.MethodGet, path, "", wire.EventStream, nil)
	if err != nil {
		return sandbox.IsRetryable(err), err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 16<<20)
	lines.Split(wholeLines)
	kind := ""
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "": // an empty line ends a message
			kind = ""
		case "event":
			kind = value
		case "data":
			if kind == "error" {
				err := problemIn(value)
				return sandbox.IsRetryable(err), err
			}
			if more, err := got(kind, value); err != nil || !more {
				return false, err
			}
		}
	}
	return true, c.lost(http.MethodGet, path, true, cmp.Or(lines.Err(), io.ErrUnexpectedEOF))
}

// wholeLines is bufio.ScanLines without an unterminated last line, which a lost connection cut off.
func wholeLines(data []byte, atEOF bool) (advance int, line []byte, err error) {
	if bytes.IndexByte(data, '\n') < 0 {
		if atEOF {
			return len(data), nil, nil
		}
		return 0, nil, nil
	}
	return bufio.ScanLines(data, atEOF)
}

// problemIn returns the error in the last message of a stream.
func problemIn(data string) error {
	var p wire.Problem
	if err := json.Unmarshal([]byte(data), &p); err != nil {
		return sandbox.Errorf(sandbox.Internal, "the reconciler ended the stream with an invalid error, %q: %w",
			data, err)
	}
	return p.Err()
}
