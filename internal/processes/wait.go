package processes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/output"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// maxLogLine limits an awaited line, in bytes.
const maxLogLine = 64 << 10

const (
	// startPause is the pause between two questions to a sandbox about a process that is just starting. askTries limits
	// them.
	startPause = 100 * time.Millisecond
	askTries   = 5
)

// WaitProcess implements service.Processes.
func (v *Service) WaitProcess(ctx context.Context, w sandbox.ProcessWait) (sandbox.ProcessWaited, error) {
	w, pattern, err := w.Normalize()
	if err != nil {
		return sandbox.ProcessWaited{}, err
	}
	if _, _, err := v.readProcessRow(ctx, w.ProcessRef); err != nil { // no sandbox is woken for it
		return sandbox.ProcessWaited{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, w.Timeout.D())
	defer cancel()
	got, err := v.waitAwake(bounded, w, pattern)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return sandbox.ProcessWaited{}, sandbox.Errorf(sandbox.Timeout,
			"lease %s: process %s did not reach the awaited state within %s: read its log",
			w.LeaseRef.ID, w.Name, w.Timeout)
	}
	return got, err
}

// waitAwake waits for a process, and keeps its sandbox awake meanwhile.
func (v *Service) waitAwake(ctx context.Context, w sandbox.ProcessWait,
	pattern *regexp.Regexp) (got sandbox.ProcessWaited, err error) {
	u, err := v.Core.BeginUse(ctx, w.LeaseRef, lifecycle.ClaimTTL, nil)
	if err != nil {
		return got, err
	}
	switch {
	case pattern != nil:
		got, err = v.awaitLine(ctx, w.ProcessRef, pattern)
	case w.Port != 0:
		got.Process, err = v.awaitPort(ctx, w.ProcessRef, w.Port)
	default:
		got.Process, err = v.awaitProcess(ctx, w.ProcessRef, func(p *execs.Process) bool { return !p.State.Live() })
	}
	return got, errors.Join(err, u.Leave(ctx, err == nil, nil))
}

// awaitProcess waits until a process satisfies done.
func (v *Service) awaitProcess(ctx context.Context, r sandbox.ProcessRef,
	done func(p *execs.Process) bool) (sandbox.Process, error) {
	for {
		changed := v.Store.Changed()
		p, _, err := v.readProcessRow(ctx, r)
		if err != nil {
			return sandbox.Process{}, err
		}
		if done(p) {
			return p.Domain(), nil
		}
		if err := v.Core.Pause(ctx, changed, micro.At(v.Store.Now().Add(lifecycle.ClaimTTL))); err != nil {
			return sandbox.Process{}, err
		}
	}
}

// errProcessEnded is the error of waiting for a process that has ended.
func errProcessEnded(p sandbox.Process) error {
	how := ""
	switch {
	case p.ExitCode != nil:
		how = fmt.Sprintf(" (with exit code %d)", *p.ExitCode)
	case p.Error != "":
		how = " (" + p.Error + ")"
	}
	return sandbox.Errorf(sandbox.Conflict, "lease %s: process %s is %s%s and did not reach the awaited state: "+
		"read its log", p.LeaseID, p.Name, p.State, how).WithReason(sandbox.ReasonProcessEnded)
}

// awaitPort waits for a port as long as the process lives.
func (v *Service) awaitPort(ctx context.Context, r sandbox.ProcessRef, port int) (sandbox.Process, error) {
	asking, stop := context.WithCancel(ctx)
	defer stop()
	opened := make(chan error, 1)
	go func() { // ends with asking
		opened <- v.askForPort(asking, r, port)
		stop()
	}()
	p, err := v.awaitProcess(asking, r, func(p *execs.Process) bool { return !p.State.Live() })
	stop()
	askErr := <-opened
	switch {
	case askErr == nil:
		return v.GetProcess(ctx, r)
	case err != nil: // it cancelled the question
		return p, askErr
	default:
		return p, errProcessEnded(p)
	}
}

// askForPort makes the backend wait for a port. It retries while the backend cannot answer.
func (v *Service) askForPort(ctx context.Context, r sandbox.ProcessRef, port int) error {
	for tries := int64(1); ; tries++ {
		_, s, err := v.readProcessRow(ctx, r)
		if err != nil {
			return err
		}
		x, h, err := v.Core.On(s)
		if err != nil {
			return err
		}
		err = x.AwaitPort(ctx, h, port)
		if err == nil || ctx.Err() != nil || !sandbox.IsRetryable(err) && !isAsleep(err) {
			return err
		}
		if err := v.Core.Pause(ctx, nil, micro.At(v.Store.Now().Add(lifecycle.Backoff(tries)))); err != nil {
			return err
		}
	}
}

// awaitLine waits for a line of a log, in this start of the process or a later one.
func (v *Service) awaitLine(ctx context.Context, r sandbox.ProcessRef,
	pattern *regexp.Regexp) (sandbox.ProcessWaited, error) {
	m := &lineMatcher{pattern: pattern}
	for tries := int64(1); ; tries++ {
		changed := v.Store.Changed()
		p, s, err := v.readProcessRow(ctx, r)
		if err != nil {
			return sandbox.ProcessWaited{}, err
		}
		if p.Starts != m.start {
			*m = lineMatcher{pattern: pattern, start: p.Starts}
		}
		err = v.followRun(ctx, s, sandbox.Replay{ID: p.Run, Stdout: m, StdoutOffset: m.next, Begins: m.begins})
		switch {
		case m.found || err == nil && m.atEnd():
			return sandbox.ProcessWaited{Process: p.Domain(), Line: m.line, Offset: m.after}, nil
		case ctx.Err() != nil:
			return sandbox.ProcessWaited{}, ctx.Err()
		case !p.State.Live():
			return sandbox.ProcessWaited{}, errProcessEnded(p.Domain())
		case err == nil:
			tries = 1 // its end or its next start is about to be recorded
		}
		wait := startPause
		switch {
		case err == nil:
			wait = lifecycle.ClaimTTL
		case tries > askTries || sandbox.ReasonOf(err) != sandbox.ReasonExecNotFound:
			wait = lifecycle.Backoff(tries)
		}
		if err := v.Core.Pause(ctx, changed, micro.At(v.Store.Now().Add(wait))); err != nil {
			return sandbox.ProcessWaited{}, err
		}
	}
}

// followRun reads the log of a start of a process. A process that never started has none.
func (v *Service) followRun(ctx context.Context, s *ledger.Sandbox, r sandbox.Replay) error {
	if r.ID == "" {
		return nil
	}
	x, h, err := v.Core.On(s)
	if err != nil {
		return err
	}
	_, err = x.Follow(ctx, h, r)
	return err
}

// lineMatcher receives a log, and looks for a matching line.
type lineMatcher struct {
	pattern *regexp.Regexp
	start   int64  // number of the start that writes the log
	next    int64  // offset of the next byte
	partial []byte // the line without an end so far

	found bool
	line  string
	after int64 // offset after the line
}

// errMatched ends the reading.
var errMatched = errors.New("the line was found")

// begins records that the log continues at another offset. Earlier bytes are then not part of the line.
func (m *lineMatcher) begins(offset int64) error {
	if offset != m.next {
		m.partial = nil
	}
	m.next = offset
	return nil
}

// Write implements io.Writer.
func (m *lineMatcher) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		line, tail, ended := bytes.Cut(rest, []byte("\n"))
		if room := maxLogLine - len(m.partial); len(line) > room {
			line, tail, ended = rest[:room], rest[room:], false
		}
		m.partial = append(m.partial, line...)
		m.next += int64(len(rest) - len(tail))
		rest = tail
		if !ended && len(m.partial) < maxLogLine {
			break
		}
		if m.matches() {
			return 0, errMatched
		}
		m.partial = m.partial[:0]
	}
	return len(p), nil
}

// atEnd reports whether the log's last line matches, which has no line break.
func (m *lineMatcher) atEnd() bool { return len(m.partial) > 0 && m.matches() }

func (m *lineMatcher) matches() bool {
	line := bytes.TrimSuffix(m.partial, []byte("\r"))
	if m.found = m.pattern.Match(line); m.found {
		m.line, m.after = string(line), m.next
	}
	return m.found
}

// ReadProcess implements service.Processes.
func (v *Service) ReadProcess(ctx context.Context, l sandbox.LogRequest) (sandbox.ProcessLog, error) {
	if err := output.CheckLogOffset("process log", l.Offset); err != nil {
		return sandbox.ProcessLog{}, err
	}
	if _, _, err := v.readProcessRow(ctx, l.ProcessRef); err != nil { // no sandbox is woken for it
		return sandbox.ProcessLog{}, err
	}
	u, err := v.Core.BeginUse(ctx, l.LeaseRef, lifecycle.ClaimTTL, nil)
	if err != nil {
		return sandbox.ProcessLog{}, err
	}
	return output.OpenLog(ctx, u, func(ctx context.Context, to io.Writer, began func(int64)) error {
		return v.sendLog(ctx, l, to, began)
	})
}

// sendLog sends the log of the latest start of a process, once its beginning is known.
func (v *Service) sendLog(ctx context.Context, l sandbox.LogRequest, to io.Writer, began func(int64)) error {
	log := output.NewLog(l.Offset, to, began)
	for {
		p, s, err := v.readProcessRow(ctx, l.ProcessRef)
		if err != nil {
			return err
		}
		err = v.followRun(ctx, s, log.Replay(fmt.Sprintf("lease %s: process %s", p.LeaseID, p.Name), p.Run, !l.Follow))
		isNew := p.State.Live() && (p.Run == "" || sandbox.ReasonOf(err) == sandbox.ReasonExecNotFound)
		switch {
		case !isNew && sandbox.ReasonOf(err) == sandbox.ReasonExecNotFound:
			return sandbox.Errorf(sandbox.NotFound, "lease %s: the log of process %s is no longer kept: its sandbox was "+
				"stopped since, or has run many others: %w", p.LeaseID, p.Name, err).WithReason(sandbox.ReasonExecNotFound)
		case p.Run == "" && !p.State.Live(), isNew && !l.Follow:
			began(0) // it never started, or is about to
			return nil
		case !isNew:
			return err
		}
		if err := v.Core.Pause(ctx, nil, micro.At(v.Store.Now().Add(startPause))); err != nil {
			return err
		}
	}
}
