package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

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

// openLong is how long a stream must be open not to have failed, even without an event. Proxies end idle connections.
const openLong = 30 * time.Second

// followAgain reconnects after a lost connection, and fails after several attempts in a row without progress. reached
// returns the progress.
func (c *Client) followAgain(ctx context.Context, reached func() int64, once func() (again bool, err error)) error {
	for failures := 0; ; failures++ {
		last, began := reached(), time.Now()
		again, err := once()
		if reached() > last || time.Since(began) >= openLong {
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

// followOnce follows one connection and moves f.AfterID past what was yielded, and past what the reconciler says that
// the filter omits. It reports whether another connection may bring more.
func (c *Client) followOnce(ctx context.Context, f *sandbox.EventFilter,
	yield func(sandbox.Event) error) (again bool, err error) {
	reach := func(id int64) {
		if f.AfterID = max(f.AfterID, id); f.Reached != nil {
			f.Reached.Store(f.AfterID)
		}
	}
	return c.readEvents(ctx, eventsPath(*f), reach, func(_, value string) (bool, error) {
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
// calls passed with the id after each message, also after one without data. It reports whether another connection may
// bring more.
func (c *Client) readEvents(ctx context.Context, path string, passed func(id int64),
	got func(kind, data string) (more bool, err error)) (again bool, err error) {
	resp, err := c.send(ctx, c.quick, http.MethodGet, path, "", wire.EventStream, nil)
	if err != nil {
		return sandbox.IsRetryable(err), err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	lines := linesOf(resp.Body)
	kind, id := "", int64(0)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "": // an empty line ends a message, and a comment is none
			if lines.Text() == "" && id > 0 {
				passed(id)
			}
			kind, id = "", 0
		case "id":
			if n, err := strconv.ParseInt(value, 10, 64); err == nil {
				id = n
			}
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

const maxLine = 16 << 20 // bytes

// linesOf returns the lines of a response, without an unterminated last line.
func linesOf(body io.Reader) *bufio.Scanner {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxLine)
	lines.Split(wholeLines)
	return lines
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
