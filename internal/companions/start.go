package companions

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// toldOutput limits how much of a companion's output events and errors repeat, in bytes.
	toldOutput = 1 << 10
	// checkOutput limits how much of a check's output is read, per stream, or of its answer's header, in bytes.
	checkOutput = 64 << 10
	// endLimit limits the wait for the container of a program that has ended.
	endLimit = 5 * time.Second
	// look is the pause between two observations of that container.
	look = 50 * time.Millisecond
)

// program is the program of a companion that is being started.
type program struct {
	on   driver.Executor
	h    driver.Handle
	name string
	spec sandbox.Companion
	log  *slog.Logger
	// failed describes the last failed check.
	mu     sync.Mutex // guards failed
	failed string
}

// start starts the program of a companion and waits until it is healthy. Errors: *failure; as the executor's, if
// nothing is known about the companion.
func (v *Service) start(ctx context.Context, t *lifecycle.Step, name string, values map[string]sandbox.Secret) error {
	host, ok := t.On.(driver.CompanionHost)
	if !ok {
		return sandbox.Errorf(sandbox.Failed, "%s runs no companions", t.On.Backend())
	}
	p := &program{on: t.On, h: t.Handle.Of(name), name: name, spec: t.Row.Companions[name], log: v.Log}
	var err error
	if t.Action == Restart && t.Row.CompanionStates[name].State == sandbox.CompanionUnhealthy { // its program runs
		err = host.StopCompanion(ctx, p.h)
	}
	if err == nil {
		err = host.ReviveCompanion(ctx, p.h)
	}
	if sandbox.ReasonOf(err) == sandbox.ReasonPartMissing {
		return p.fails(removed)
	}
	if err == nil && len(p.spec.Secrets) > 0 {
		err = t.On.PutSecrets(ctx, p.h, values)
	}
	command := p.spec.Command
	if err == nil && len(command) == 0 {
		command, err = host.CompanionProgram(ctx, p.h)
	}
	if err != nil {
		return p.explain(ctx, err)
	}
	if len(command) == 0 {
		return p.fails("its image has no entrypoint and no command: set command")
	}
	return p.begin(ctx, command)
}

func (p *program) fails(reason string) error {
	return &failure{sandbox.CompanionFailure{Name: p.name, Reason: reason}}
}

// begin runs the program, and returns once it is healthy or has ended.
func (p *program) begin(ctx context.Context, command []string) error {
	within, cancel := context.WithTimeout(ctx, p.spec.HealthCheck.StartPeriod.D())
	var working sync.WaitGroup
	defer working.Wait() // the program keeps running
	defer cancel()
	ended, healthy := make(chan error, 1), make(chan error, 1)
	working.Go(func() { ended <- p.run(within, command) })
	working.Go(func() { healthy <- p.await(within) })
	select {
	case err := <-ended:
		if within.Err() == nil {
			return p.explain(ctx, err)
		}
	case err := <-healthy:
		if err == nil {
			return nil
		}
		if within.Err() == nil {
			return p.explain(ctx, err)
		}
	case <-within.Done():
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	f := sandbox.CompanionFailure{Name: p.name, Output: p.said(ctx),
		Reason: fmt.Sprintf("it was not healthy after %s (%s)", p.spec.HealthCheck.StartPeriod,
			cmp.Or(p.failed, "no check ended"))}
	return &failure{f}
}

// run runs the program, or follows it if it runs already.
func (p *program) run(ctx context.Context, command []string) error {
	_, err := p.on.RunProcess(ctx, p.h, driver.ProcessRun{ID: driver.CompanionMain, Command: command, Cwd: "/workspace"})
	if sandbox.ReasonOf(err) == sandbox.ReasonOtherSettings {
		_, err = p.on.Follow(ctx, p.h, sandbox.Replay{ID: driver.CompanionMain})
	}
	return err
}

// explain returns why the program has ended, err if that is unknown.
func (p *program) explain(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	for {
		o, lookErr := p.on.Inspect(ctx, p.h.Sandbox())
		if lookErr != nil {
			return cmp.Or(err, lookErr)
		}
		is, ok := o.Companions[p.name]
		switch {
		case o.State != sandbox.StateRunning: // it ended with its sandbox
			return sandbox.Errorf(sandbox.Unavailable, "companion %s: its sandbox is %s", p.name, o.State)
		case !ok:
			return p.fails(removed)
		case is.State == sandbox.StateStopped:
			return &failure{ending(p.name, is)}
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = sandbox.Errorf(sandbox.Unavailable, "companion %s: its program has ended and it still runs", p.name)
			}
			return err
		case <-time.After(look):
		}
	}
}

// said returns the end of a running program's output, "" if it cannot be read.
func (p *program) said(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	var text tail
	if _, err := p.on.Follow(ctx, p.h, sandbox.Replay{ID: driver.CompanionMain, Now: true, Stdout: &text}); err != nil {
		p.log.WarnContext(ctx, "companions: reading what a failed companion wrote", "environment", p.h.EnvironmentID,
			"sandbox", p.h.SandboxID, "companion", p.name, "error", err)
		return ""
	}
	return lastOf(text.String())
}

// tail keeps the end of what is written to it.
type tail struct{ bytes.Buffer }

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	_, _ = t.Buffer.Write(b) // writing to memory never fails
	if extra := t.Len() - toldOutput; extra > 0 {
		t.Next(extra)
	}
	return len(b), nil
}

func lastOf(output string) string {
	return strings.TrimSpace(strings.ToValidUTF8(output[max(len(output)-toldOutput, 0):], ""))
}

// await returns once the program is healthy. Errors: of ctx.
func (p *program) await(ctx context.Context) error {
	h := p.spec.HealthCheck
	if !h.IsSet() {
		return p.awaitStart(ctx)
	}
	if err := p.awaitBegun(ctx); err != nil { // a check may pass before the program runs, and end its start
		return err
	}
	for {
		err := p.check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil { // otherwise the check was cancelled
			p.mu.Lock()
			p.failed = err.Error()
			p.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(h.Interval.D()):
		}
	}
}

// awaitStart returns once the program has run for a moment.
func (p *program) awaitStart(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(settles):
	}
	return p.awaitBegun(ctx)
}

// awaitBegun returns once the program has begun. Errors: of ctx.
func (p *program) awaitBegun(ctx context.Context) error {
	for {
		_, err := p.on.Follow(ctx, p.h, sandbox.Replay{ID: driver.CompanionMain, Now: true})
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(look):
		}
	}
}

// check checks once. Its errors are for people, and not much longer than toldOutput.
func (p *program) check(ctx context.Context) error {
	h := p.spec.HealthCheck
	limited, cancel := context.WithTimeout(ctx, h.Timeout.D())
	defer cancel()
	var err error
	switch {
	case len(h.Command) > 0:
		err = p.checkCommand(limited)
	case h.Path != "":
		err = p.checkPath(limited)
	default:
		err = p.on.AwaitPort(limited, p.h, h.Port)
	}
	switch {
	case err != nil && limited.Err() != nil && ctx.Err() == nil:
		return fmt.Errorf("the last check did not end within %s", h.Timeout)
	case err != nil && len(err.Error()) > toldOutput: // it repeats what the companion answered
		return errors.New(strings.ToValidUTF8(err.Error()[:toldOutput], "") + "…")
	default:
		return err
	}
}

func (p *program) checkCommand(ctx context.Context) error {
	h := p.spec.HealthCheck
	r, err := sandbox.ExecRequest{Command: h.Command, Timeout: h.Timeout, OutputLimit: checkOutput}.Normalize()
	if err != nil {
		return err
	}
	res, err := p.on.Exec(ctx, p.h, r)
	switch {
	case err != nil:
		return err
	case res.TimedOut:
		return fmt.Errorf("the last check did not end within %s", h.Timeout)
	case res.ExitCode != 0:
		return fmt.Errorf("the last check ended with exit code %d and wrote %q", res.ExitCode,
			lastOf(string(res.Stdout)+string(res.Stderr)))
	}
	return nil
}

// checkPath sends a GET over a connection from the companion's side of the network.
func (p *program) checkPath(ctx context.Context) error {
	h := p.spec.HealthCheck
	ctx, cancel := context.WithCancel(ctx)
	var connecting sync.WaitGroup
	defer connecting.Wait()
	defer cancel()
	dial := func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		connecting.Go(func() {
			err := p.on.Connect(ctx, p.h, h.Port, driver.Connection{Opened: func() {}, From: far, To: far})
			_ = errors.Join(err, far.Close()) // the request fails with it
		})
		return near, nil
	}
	client := http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial,
			MaxResponseHeaderBytes: checkOutput},
	}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+strconv.Itoa(h.Port)+h.Path, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	_ = answer.Body.Close() // only its status counts
	if answer.StatusCode < 200 || answer.StatusCode > 399 {
		return fmt.Errorf("the last check was answered with status %d", answer.StatusCode)
	}
	return nil
}
