package reconciler_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// terminated is the exit code of a command that SIGTERM ended, as a stop of its sandbox does.
const terminated = 128 + 15

// TestCommandsContinueWhileAnEngineWithLiveRestoreRestarts restarts an engine under running commands. Clients follow the
// commands all the time.
func TestCommandsContinueWhileAnEngineWithLiveRestoreRestarts(t *testing.T) {
	t.Parallel()
	d := dockertest.StartDaemon(t)
	w := newWorld(t, d.Host())
	w.environment("restart")
	c := &clients{T: t, last: t.Context()}
	c.service.Store(&w.service)
	leases := []sandbox.Lease{w.acquire(agent(0), "restart")}
	detached := &numbered{
		lease:    leases[0].ID,
		id:       "detached",
		lines:    150,
		pause:    "0.1",
		code:     3,
		named:    true,
		detached: true,
	}
	attached := &numbered{lease: leases[0].ID, id: "attached", lines: 150, pause: "0.1", code: 4}
	ended := make(chan struct{}, 2)
	go func() { c.follow(detached); ended <- struct{}{} }()
	go func() { c.try(attached); ended <- struct{}{} }()
	w.writes(detached, "\n5\n")

	d.Stop()
	before := len(w.wrote(detached))
	time.Sleep(3 * time.Second) //nolint:forbidigo // the outage itself
	if now := len(w.wrote(detached)); now <= before {
		t.Errorf("while the engine was away the command wrote %d bytes, and nothing after them", now)
	}
	d.Start()
	back := numbered{lease: leases[0].ID, id: "back", lines: 10, code: 2}
	c.try(&back)
	<-ended
	<-ended
	c.commands = []*numbered{detached, attached, &back}
	for _, command := range c.commands {
		if !command.acknowledged || command.repeated {
			t.Errorf("%s: acknowledged %t, repeated %t: %v", command.id, command.acknowledged, command.repeated, command.refused)
		}
	}
	c.judge(c.ran(leases))
}

// TestCommandsEndWithAnEngineWithoutLiveRestore stops an engine that ends all containers, under running commands. The
// ledger records them as failed, or as ended by the signal, with their output. The costs of the sandbox end with them.
// Its relay and the sandbox come back.
func TestCommandsEndWithAnEngineWithoutLiveRestore(t *testing.T) {
	t.Parallel()
	d := dockertest.StartDaemonWithoutLiveRestore(t)
	w := newWorld(t, d.Host())
	w.environment("restart")
	begun := time.Now()
	l := w.acquire(agent(0), "restart")
	detached := &numbered{lease: l.ID, id: "detached", lines: 5000, pause: "0.1", named: true, detached: true}
	attached := &numbered{lease: l.ID, id: "attached", lines: 5000, pause: "0.1", named: true}
	if _, err := w.service.StartExec(t.Context(), sandbox.LeaseRef{ID: l.ID}, detached.request()); err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 1)
	go func() {
		res, err := w.service.Exec(t.Context(), sandbox.LeaseRef{ID: l.ID}, attached.request())
		if err == nil && res.ExitCode == terminated {
			err = errors.New("it was stopped by a signal")
		}
		told <- err
	}()
	seen := map[*numbered]string{detached: w.writes(detached, "\n5\n"), attached: w.writes(attached, "\n5\n")}

	d.Stop()
	stopped := time.Now()
	time.Sleep(outage) //nolint:forbidigo // the outage itself
	back := time.Now()
	d.Start()
	if err := <-told; err == nil {
		t.Error("the attached command has succeeded for its caller")
	} else {
		t.Logf("the attached command has ended for its caller with: %v", err) // its connection may have failed first
	}
	for command, before := range seen {
		var x sandbox.Exec
		w.eventually(command.id+" is recorded as ended", func() (ok bool) {
			var err error
			x, err = w.service.GetExec(t.Context(), sandbox.ExecRef{LeaseID: l.ID, ID: command.id})
			return err == nil && x.State != sandbox.ExecRunning
		})
		kept := w.wrote(command)
		t.Logf("%s is %s: %s; %d bytes are kept", command.id, x.State, x.Error, len(kept))
		failed := x.State == sandbox.ExecFailed && strings.Contains(x.Error, "stopped")
		ended := x.State == sandbox.ExecFinished && *x.ExitCode == terminated // the sandbox could still report it
		if !failed && !ended {
			t.Errorf("%s is %+v", command.id, x)
		}
		if x.FinishedAt.IsZero() || x.FinishedAt.After(stopped.Add(time.Second)) {
			t.Errorf("%s has ended at %v, the engine had stopped at %v", command.id, x.FinishedAt, stopped)
		}
		if !strings.HasPrefix(kept, before) || !strings.HasPrefix(command.stdout(), kept) {
			t.Errorf("of the output of %s, a client saw %q, and the ledger has %q", command.id, before, kept)
		}
	}
	var ran string
	w.eventually("the sandbox was started again", func() bool {
		res, err := w.service.Exec(t.Context(), sandbox.LeaseRef{ID: l.ID},
			sandbox.ExecRequest{Command: []string{"cat", ranFile}})
		ran = string(res.Stdout)
		return err == nil && res.ExitCode == 0
	})
	if len(strings.Fields(ran)) != 2 {
		t.Errorf("these have run: %q", ran)
	}
	report, err := w.service.Costs(t.Context(), sandbox.CostQuery{})
	if err != nil {
		t.Fatal(err)
	}
	most := stopped.Sub(begun) + time.Since(back) + time.Second
	t.Logf("it is billed as awake for %.1f s, the engine was there for %s", report.Total.AwakeSeconds, most)
	if report.Total.AwakeSeconds > most.Seconds() {
		t.Errorf("it is billed as awake for %.1f s, at most %s is right: the engine was away for %s",
			report.Total.AwakeSeconds, most, back.Sub(stopped))
	}
}

// writes waits until a command has written something, and returns all of its output so far.
func (w *world) writes(c *numbered, what string) (all string) {
	w.Helper()
	w.eventually(c.id+" has written", func() bool {
		all = w.wrote(c)
		return strings.Contains(all, what)
	})
	return all
}

// wrote returns the output of a command so far, "" if it cannot be read.
func (w *world) wrote(c *numbered) string {
	w.Helper()
	ref := sandbox.ExecRef{LeaseID: c.lease, ID: c.id}
	r, err := w.service.ReadExec(w.Context(), sandbox.OutputRequest{ExecRef: ref, Stream: sandbox.Stdout})
	if err != nil {
		return ""
	}
	defer func() { _ = r.Close() }() // everything was read
	b, err := io.ReadAll(r)
	if err != nil {
		return ""
	}
	return string(b)
}
