package docker

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/helper"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

const (
	// lateEvents is how long an engine may take to hear of what it did itself.
	lateEvents = 300 * time.Millisecond
	// usualStart is how long a start mostly takes.
	usualStart = 200 * time.Millisecond
	// rareLook is the time between two questions about a start that hangs.
	rareLook = 30 * time.Second
	// maxDiagnostics bounds what is kept of a guest's own complaints, in bytes.
	maxDiagnostics = 4 << 10
)

// help runs the guest as a helper in a sandbox and returns what it reports. When ctx ends first, what it runs is
// ended too. Errors: as Runner.Exec. An Engine 20.10 may hear of a pause late, from itself, and then take a
// sandbox that was woken since for a paused one until it hears of that too: so its refusal stands only for a while.
func (e *Executor) help(ctx context.Context, h sandbox.Handle, call helper.Call) (res wire.Result, err error) {
	if err := checkHandle(h); err != nil {
		return res, err
	}
	var again bool
	_ = await(ctx, "the engine starts a process", lateEvents, func(context.Context) (bool, error) {
		res, again, err = e.helpOnce(ctx, h, call)
		return !again, nil
	}) // after which err is the engine's last word
	if again {
		err = e.refused(ctx, h, err)
	}
	return res, err
}

// helpOnce is help, which may try it again where the engine has refused it and nothing was read of its input.
func (e *Executor) helpOnce(ctx context.Context, h sandbox.Handle, call helper.Call) (res wire.Result, again bool, err error) {
	leave, err := e.gates.start(ctx, sandboxName(h))
	if err != nil {
		return res, false, err
	}
	execID, conn, err := e.startHelper(ctx, h, call)
	ended := make(chan struct{}) // by the engine, which then starts nothing any more
	if execID == "" {
		leave()
	} else { // the engine may be starting it, whatever came back
		e.starts.Go(func() {
			defer leave()
			e.awaitStart(execID, ended)
		})
	}
	switch {
	case isCode(err, sandbox.Conflict), isCode(err, sandbox.Unavailable):
		return res, true, err
	case err != nil:
		return res, false, e.refused(ctx, h, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, conn.Close)
	defer stop()
	if call.Stdin != nil {
		go func() { // ends with the input, or with the connection
			_, _ = io.Copy(conn.Conn, call.Stdin) // a command need not read all of its input
			_ = conn.CloseWrite()
		}()
	}
	out := untilReport{
		Demux: &wire.Demux{Stdout: call.Stdout, Stderr: call.Stderr, Begins: call.Begins},
		head:  &helper.Capture{Limit: maxDiagnostics},
	}
	diagnostics := &helper.Capture{Limit: maxDiagnostics}
	_, copyErr := dockerapi.StdCopy(out, diagnostics, conn.Reader)
	report, hasReported := out.Result()
	hasEnded := hasReported || copyErr == nil && ctx.Err() == nil
	if hasEnded {
		close(ended)
	}
	if hasReported {
		return report, false, nil
	}
	if hasEnded {
		switch err := e.notStarted(ctx, h, execID, out.head.String()); {
		case isCode(err, sandbox.Unavailable) && call.Stdin == nil:
			return res, true, err
		case isCode(err, sandbox.Unavailable): // what was read of an input cannot be read again
			return res, false, e.refused(ctx, h, err)
		case err != nil:
			return res, false, err
		}
	}
	return res, false, e.lost(ctx, h, call, execID, copyErr, diagnostics.String())
}

// untilReport passes on what a helper writes, and ends its reading with its report: the helper ends then, and
// an engine takes a while to tell that.
type untilReport struct {
	*wire.Demux
	head *helper.Capture // of what came: where a process cannot be started, an engine's own words come
}

// Write implements io.Writer.
func (u untilReport) Write(p []byte) (int, error) {
	_, _ = u.head.Write(p) // does not fail
	n, err := u.Demux.Write(p)
	if _, hasReported := u.Result(); hasReported && err == nil {
		err = io.EOF
	}
	return n, err
}

// startHelper starts the helper. Its id comes with an error too when the engine may run it all the same.
func (e *Executor) startHelper(ctx context.Context, h sandbox.Handle, call helper.Call) (string, dockerapi.HijackedResponse, error) {
	r := change("run the guest in", sandboxName(h), sandbox.ReasonExecFailed)
	made, err := fetch(ctx, e, r, func(ctx context.Context) (dockerapi.ExecCreateResponse, error) {
		return e.api.ContainerExecCreate(ctx, sandboxName(h), dockerapi.ExecOptions{
			User: call.User, Env: assignments(call.Env), Cmd: append([]string{guest.Path}, call.Args...),
			AttachStdin: call.Stdin != nil, AttachStdout: true, AttachStderr: true,
		})
	})
	if err != nil {
		return "", dockerapi.HijackedResponse{}, err
	}
	r.once = true
	conn, err := fetch(ctx, e, r, func(ctx context.Context) (dockerapi.HijackedResponse, error) {
		return e.hijack(ctx, made.ID)
	})
	if err != nil && !isCode(err, sandbox.UnknownOutcome) {
		made.ID = "" // it was not started
	}
	return made.ID, conn, err
}

// hijack opens the streams of an exec. The client does not heed ctx once it has connected, so a
// hanging engine is left to itself.
func (e *Executor) hijack(ctx context.Context, execID string) (dockerapi.HijackedResponse, error) {
	type answer struct {
		conn dockerapi.HijackedResponse
		err  error
	}
	answers := make(chan answer)
	go func() { // ends when the engine answers or closes the connection
		conn, err := e.api.ContainerExecAttach(ctx, execID, dockerapi.ExecAttachOptions{})
		select {
		case answers <- answer{conn, err}:
		case <-ctx.Done():
			if err == nil {
				conn.Close()
			}
		}
	}()
	select {
	case a := <-answers:
		return a.conn, a.err
	case <-ctx.Done():
		return dockerapi.HijackedResponse{}, ctx.Err()
	}
}

// refused explains why an engine did not run the helper: the client gives some answers no class, so
// the sandbox itself is asked.
func (e *Executor) refused(ctx context.Context, h sandbox.Handle, cause error) error {
	if isCode(cause, sandbox.UnknownOutcome) {
		return cause
	}
	c, err := e.inspect(ctx, h)
	if err != nil {
		return err
	}
	if s := stateOf(c.State); s != sandbox.StateRunning {
		return e.wrongState(h, s)
	}
	return cause
}

// awaitStart waits until the engine has started a process, or has failed to. It goes on when the
// caller does not, for the engine does too: for as long as the container is there.
func (e *Executor) awaitStart(execID string, ended <-chan struct{}) {
	r := read("wait for the start of process", execID)
	r.waits = true
	began, pause := time.Now(), usualStart // most have ended before it is worth while to ask
	for {
		select {
		case <-ended:
			return
		case <-e.life.Done():
			return
		case <-time.After(pause):
		}
		x, err := fetch(e.life, e, r, func(ctx context.Context) (dockerapi.ExecInspect, error) {
			return e.api.ContainerExecInspect(ctx, execID)
		})
		switch {
		case err == nil && (x.Pid != 0 || x.ExitCode != 0), isCode(err, sandbox.NotFound), e.life.Err() != nil:
			return
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			e.log.Warn("docker: a process does not start", "process", execID, "error", err)
			return
		}
		if pause == usualStart && time.Since(began) > changeLimit {
			e.log.Warn("docker: a process does not start; until it does, the engine is not asked about its container",
				"process", execID, "error", err)
			pause = rareLook
		}
	}
}

// notStarted tells, of a process whose streams have ended, that the engine never started it: it takes a
// process, opens the streams, and may only then find that the container is paused, or that its runtime fails.
// Errors: Unavailable: it did not try to; Failed.
func (e *Executor) notStarted(ctx context.Context, h sandbox.Handle, execID, said string) error {
	x, err := e.inspectExec(ctx, execID)
	if mayHaveRun := err != nil || x.Running || x.Pid != 0; mayHaveRun {
		return nil // what becomes of it is for lost to tell
	}
	if x.ExitCode != 0 {
		return sandbox.Errorf(sandbox.Failed, "docker: sandbox %s: command: the engine could not start it (code %d): %s", h.SandboxID, x.ExitCode, strings.TrimSpace(said)).
			WithReason(sandbox.ReasonExecFailed)
	}
	return sandbox.Errorf(sandbox.Unavailable, "docker: sandbox %s: command: the engine did not try to start it: %s (retry)", h.SandboxID, strings.TrimSpace(said)).
		WithReason(sandbox.ReasonExecFailed)
}

// lost ends a command whose result will not come, and explains why.
func (e *Executor) lost(ctx context.Context, h sandbox.Handle, call helper.Call, execID string, cause error, diagnostics string) error {
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), helper.KillLimit)
	defer cancel()
	killed, killErr := e.killCommand(cleanup, h, call, execID)
	fail := func(code sandbox.Code, format string, args ...any) error {
		err := sandbox.Errorf(code, "docker: sandbox %s: command: "+format, append([]any{h.SandboxID}, args...)...).WithReason(sandbox.ReasonExecFailed)
		if killErr != nil {
			err.Code, err.Message = sandbox.UnknownOutcome, err.Message+"; it may still run: "+killErr.Error()
		}
		return err
	}
	switch {
	case ctx.Err() != nil:
		return fail(sandbox.Timeout, "ended before it was finished: %w", ctx.Err())
	case cause != nil:
		return fail(sandbox.UnknownOutcome, "the stream broke: %w", cause)
	case killed:
		return fail(sandbox.UnknownOutcome, "the stream ended while it ran, so it was ended")
	}
	c, err := e.inspect(cleanup, h)
	if err != nil {
		return err
	}
	if s := stateOf(c.State); s != sandbox.StateRunning {
		return fail(sandbox.UnknownOutcome, "the sandbox ended meanwhile and is %s (exit code %d)", s, c.State.ExitCode)
	}
	if x, err := e.inspectExec(cleanup, execID); err == nil {
		return fail(sandbox.Failed, "the guest ended with exit code %d and without a report: %s", x.ExitCode, diagnostics)
	}
	return fail(sandbox.UnknownOutcome, "the guest sent no report: %s", diagnostics)
}

func (e *Executor) inspectExec(ctx context.Context, execID string) (dockerapi.ExecInspect, error) {
	return fetch(ctx, e, read("inspect exec", execID), func(ctx context.Context) (dockerapi.ExecInspect, error) {
		return e.api.ContainerExecInspect(ctx, execID)
	})
}

// killCommand ends what a helper runs, and reports whether it had to. Docker has no kill for an
// exec, so another helper does it.
func (e *Executor) killCommand(ctx context.Context, h sandbox.Handle, call helper.Call, execID string) (killed bool, err error) {
	if call.ID == "" {
		return false, nil // a transfer ends with its streams, and a detached command goes on
	}
	err = await(ctx, "command "+call.ID+" has ended", helper.KillLimit, func(ctx context.Context) (bool, error) {
		x, err := e.inspectExec(ctx, execID)
		if isCode(err, sandbox.NotFound) || (err == nil && !x.Running && (x.Pid != 0 || x.ExitCode != 0)) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		c, err := e.inspect(ctx, h)
		if isCode(err, sandbox.NotFound) || (err == nil && !c.State.Running) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		killed = true
		_, err = e.help(ctx, h, helper.Call{Args: []string{"kill", "-id", call.ID}, User: call.User})
		return false, err
	})
	return killed, err
}
