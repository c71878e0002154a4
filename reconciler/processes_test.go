package reconciler_test

import (
	"context"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// leaseWithProcesses acquires a lease of an environment that sleeps by stop, whose sandboxes run a watcher and a
// server.
func (w *world) leaseWithProcesses() sandbox.LeaseRef {
	w.Helper()
	never := sandbox.Duration(0)
	w.environment("catan", func(p *sandbox.PutEnvironment) {
		p.SleepAfter, p.SleepMode = &never, sandbox.SleepStop
		p.Processes = []sandbox.ProcessSpec{
			{
				Name:    "watcher",
				Command: []string{"sh", "-c", `echo $$ > watcher.pid; sleep 1; echo "subscribed to $TOPIC"; i=0; while sleep 0.2; do i=$((i+1)); echo "turn $i"; done`},
				Env:     map[string]string{"TOPIC": "games"},
				Restart: sandbox.RestartAlways,
			},
			{Name: "server", Command: []string{"sh", "-c", "sleep 1; while :; do nc -l -p 8080 < /dev/null; done"}},
		}
	})
	return sandbox.LeaseRef{ID: w.acquire(agent(1), "catan").ID}
}

func (w *world) waitFor(wait sandbox.ProcessWait) sandbox.ProcessWaited {
	w.Helper()
	got, err := w.service.WaitProcess(w.Context(), wait)
	if err != nil {
		w.Fatal(err)
	}
	return got
}

func (w *world) processOf(r sandbox.ProcessRef) sandbox.Process {
	w.Helper()
	p, err := w.service.GetProcess(w.Context(), r)
	if err != nil {
		w.Fatal(err)
	}
	return p
}

// alive counts the processes of a sandbox whose command line begins with command.
func (w *world) alive(r sandbox.LeaseRef, command string) int {
	w.Helper()
	res, err := w.service.Exec(w.Context(), r, sandbox.ExecRequest{
		Command: []string{"sh", "-c", `for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline 2>/dev/null; echo; done`},
	})
	if err != nil {
		w.Fatal(err)
	}
	return strings.Count("\n"+string(res.Stdout), "\n"+command)
}

// TestDeclaredProcessesLastAsLongAsTheirSandbox follows the processes of one real sandbox through its whole life: a
// wait for a line and for a port, their end by a signal, a stop and a wake, the death of the reconciler, a kill, and
// the end of the lease.
func TestDeclaredProcessesLastAsLongAsTheirSandbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	r := w.leaseWithProcesses()
	watcher, server := sandbox.ProcessRef{LeaseRef: r, Name: "watcher"}, sandbox.ProcessRef{LeaseRef: r, Name: "server"}
	if got := w.waitFor(sandbox.ProcessWait{ProcessRef: watcher, Log: "^subscribed"}); got.Line != "subscribed to games" ||
		got.Starts != 1 {
		t.Fatalf("the wait for a line returned %+v", got)
	}
	w.waitFor(sandbox.ProcessWait{ProcessRef: server, Port: 8080})

	if _, err := w.service.Exec(t.Context(), r,
		sandbox.ExecRequest{Command: []string{"sh", "-c", "kill -9 $(cat /workspace/watcher.pid)"}}); err != nil {
		t.Fatal(err)
	}
	w.eventually("a process that was killed from inside is started again",
		func() bool { return w.processOf(watcher).Starts == 2 })
	if p := w.processOf(watcher); p.ExitCode == nil || *p.ExitCode != 137 {
		t.Errorf("it ended with %+v", p)
	}

	if _, err := w.service.Sleep(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if p := w.processOf(watcher); p.State != sandbox.ProcessPending {
		t.Errorf("in a sandbox that was stopped it is %+v", p)
	}
	if _, err := w.service.Wake(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if got := w.waitFor(sandbox.ProcessWait{ProcessRef: watcher, Log: "^turn 1$"}); got.Starts != 3 {
		t.Errorf("after a wake it is %+v", got)
	}
	w.waitFor(sandbox.ProcessWait{ProcessRef: server, Port: 8080})
	t.Logf("all of it ran %v after the wake", time.Since(began))
	w.processesOutliveTheReconciler(watcher)

	killed, err := w.service.KillProcess(t.Context(), server)
	if err != nil || killed.State != sandbox.ProcessKilled {
		t.Errorf("a kill returned %+v, %v", killed, err)
	}
	if n := w.alive(r, "nc -l"); n != 0 {
		t.Errorf("%d processes remain after a kill", n)
	}
	if _, err := w.service.Release(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if p := w.processOf(watcher); p.State != sandbox.ProcessStopped {
		t.Errorf("after the end of its lease it is %+v", p)
	}
}

// processesOutliveTheReconciler kills the reconciler while a client reads a log, and starts it again.
func (w *world) processesOutliveTheReconciler(r sandbox.ProcessRef) {
	w.Helper()
	before := w.processOf(r)
	log, err := w.service.ReadProcess(w.Context(), sandbox.LogRequest{ProcessRef: r, Follow: true})
	if err != nil {
		w.Fatal(err)
	}
	w.kill()
	head, err := io.ReadAll(log)
	if err == nil {
		w.Error("a log that broke off says that it ended")
	}
	_ = log.Close()
	w.start()
	ctx, cancel := context.WithCancel(w.Context())
	defer cancel()
	log, err = w.service.ReadProcess(ctx, sandbox.LogRequest{ProcessRef: r, Offset: int64(len(head)), Follow: true})
	if err != nil || log.Offset != int64(len(head)) {
		w.Fatalf("the log continues at %d, want %d: %v", log.Offset, len(head), err)
	}
	tail := make([]byte, 400)
	if _, err := io.ReadFull(log, tail); err != nil {
		w.Fatal(err)
	}
	cancel()
	_ = log.Close()
	all := string(head) + string(tail)
	for i, line := range strings.Split(all[:strings.LastIndex(all, "\n")], "\n")[1:] {
		if want := "turn " + strconv.Itoa(i+1); line != want {
			w.Fatalf("line %d of the log is %q, want %q", i+1, line, want)
		}
	}
	if after := w.processOf(r); after.Starts != before.Starts || after.State != sandbox.ProcessRunning {
		w.Errorf("after the restart it is %+v", after)
	}
}
