package servicetest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var runTests = []test{
	{"ARunLeavesNothingBehind", aRunLeavesNothingBehind},
	{"ARunMovesFilesInAndOut", aRunMovesFilesInAndOut},
	{"ARunStreams", aRunStreams},
	{"ARunEndsWithItsCaller", aRunEndsWithItsCaller},
	{"ARunTouchesNoOtherLease", aRunTouchesNoOtherLease},
	{"ARunNamesWrongFields", aRunNamesWrongFields},
}

// run runs a command in the environment of most tests.
func (w *world) run(r sandbox.RunRequest) sandbox.RunResult {
	w.Helper()
	r.EnvironmentID = game
	return must(w.Service.Run(w.Context(), r))(w)
}

func command(args ...string) sandbox.ExecRequest { return sandbox.ExecRequest{Command: args} }

func aRunLeavesNothingBehind(w *world) {
	w.environment()
	first := w.run(sandbox.RunRequest{ExecRequest: command("echo", "hello")})
	if string(first.Stdout) != "hello\n" || first.ExitCode != 0 || first.Lease.Status != sandbox.LeaseDestroyed ||
		first.Lease.EndedBy != sandbox.EndedByRelease || w.Running() != 0 {
		w.Errorf("the run gave %+v, and %d sandboxes are left", first, w.Running())
	}
	if first.Lease.MaxLifetime.D() != sandbox.DefaultExecTimeout.D()+sandbox.DefaultRunMargin.D() ||
		first.Lease.TTL != sandbox.DefaultRunMargin {
		w.Errorf("nobody would have ended it before %s, or %s without a sign", first.Lease.MaxLifetime, first.Lease.TTL)
	}
	second := w.run(sandbox.RunRequest{ExecRequest: command("exit", "7")})
	if second.ExitCode != 7 || second.Lease.Status != sandbox.LeaseDestroyed ||
		second.Lease.AgentDID == first.Lease.AgentDID {
		w.Errorf("a command that fails gave %+v", second)
	}
	late := command("sleep", "1h")
	late.Timeout = sandbox.Duration(10 * time.Millisecond)
	if r := w.run(sandbox.RunRequest{ExecRequest: late}); !r.TimedOut || r.ExitCode != sandbox.ExitTimeout ||
		r.Lease.Status != sandbox.LeaseDestroyed {
		w.Errorf("a command out of time gave %+v", r)
	}
	for generation := int64(1); generation < 3; generation++ {
		if r := w.run(sandbox.RunRequest{AgentDID: ann, ExecRequest: command("echo")}); r.Lease.ID != annsLease ||
			r.Lease.Generation != generation {
			w.Errorf("run %d of one agent was lease %s, generation %d", generation, r.Lease.ID, r.Lease.Generation)
		}
	}
	if w.Running() != 0 {
		w.Errorf("%d sandboxes are left", w.Running())
	}
}

func aRunMovesFilesInAndOut(w *world) {
	w.environment()
	var out bytes.Buffer
	r := w.run(sandbox.RunRequest{
		ExecRequest: command("exit", "3"), Files: archive(w, "maps/one.txt", "gold"),
		Collect: []string{"maps", "none", "/workspace/maps/one.txt"}, Collected: &out,
	})
	if r.ExitCode != 3 || !slices.Equal(r.Missing, []string{"/workspace/none"}) {
		w.Errorf("the run gave %+v", r)
	}
	var got []string
	for entries := tar.NewReader(&out); ; {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			w.Fatal(err)
		}
		text := must(io.ReadAll(entries))(w)
		got = append(got, h.Name+"="+string(text))
	}
	if want := []string{"workspace/maps/one.txt=gold", "workspace/maps/one.txt=gold"}; !slices.Equal(got, want) {
		w.Errorf("collected %q, want %q", got, want)
	}
	_, err := w.Service.Run(w.Context(), sandbox.RunRequest{
		EnvironmentID: game,
		ExecRequest:   command("echo"),
		Files:         strings.NewReader(strings.Repeat("no tar", 200)),
	})
	if w.wantError(err, sandbox.Invalid, ""); w.Running() != 0 {
		w.Errorf("%d sandboxes are left", w.Running())
	}
}

func aRunStreams(w *world) {
	w.environment()
	var out bytes.Buffer
	exec := command("cat")
	exec.Stdin, exec.Stdout = strings.NewReader("from the keyboard"), &out
	if r := w.run(sandbox.RunRequest{
		ExecRequest: exec,
		Files:       archive(w, "a", "b"),
	}); out.String() != "from the keyboard" || len(r.Stdout) != 0 {
		w.Errorf("streamed %q, and collected %q", out.String(), r.Stdout)
	}
	exec.Stdin, exec.Stdout = strings.NewReader("once more"), nil
	if r := w.run(sandbox.RunRequest{ExecRequest: exec}); string(r.Stdout) != "once more" {
		w.Errorf("collected %q", r.Stdout)
	}
}

func aRunEndsWithItsCaller(w *world) {
	w.environment()
	ctx, cancel := context.WithCancel(w.Context())
	exec := command("sleep", "1h")
	exec.Timeout = sandbox.Duration(2 * time.Hour)
	ended := make(chan error, 1)
	go func() {
		_, err := w.Service.Run(ctx, sandbox.RunRequest{EnvironmentID: game, AgentDID: ann, ExecRequest: exec})
		ended <- err
	}()
	w.waitForEvent(sandbox.EventExecStarted)
	cancel()
	if err := <-ended; err == nil {
		w.Error("the run of a caller that has gone has a result")
	}
	w.waitForEvent(sandbox.EventDeleted)
	if w.Running() != 0 {
		w.Errorf("%d sandboxes are left", w.Running())
	}
}

func aRunTouchesNoOtherLease(w *world) {
	w.environment()
	before := w.acquire(ann)
	_, err := w.Service.Run(w.Context(),
		sandbox.RunRequest{EnvironmentID: game, AgentDID: ann, ExecRequest: command("echo")})
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherOwner)
	if after := w.lease(ann); after.Status != sandbox.LeaseActive || after.SandboxID != before.SandboxID {
		w.Errorf("the agent's own lease is %s, in generation %d", after.Status, after.Generation)
	}
}

func aRunNamesWrongFields(w *world) {
	w.environment(keepsState)
	_, err := w.Service.Run(w.Context(), sandbox.RunRequest{
		EnvironmentID: "Catan",
		AgentDID:      "ann",
		Margin:        1,
		Collect:       []string{"/etc"},
		ExecRequest:   sandbox.ExecRequest{Cwd: "/etc"},
		Collected:     io.Discard,
	})
	w.wantError(err, sandbox.Invalid, "", "environment_id", "agent_did", "margin", "collect[0]", "command", "cwd")
	_, err = w.Service.Run(w.Context(),
		sandbox.RunRequest{EnvironmentID: "none", AgentDID: ann, ExecRequest: command("echo")})
	w.wantError(err, sandbox.NotFound, "")
	_, err = w.Service.Run(w.Context(), sandbox.RunRequest{EnvironmentID: game, ExecRequest: command("echo")})
	w.wantError(err, sandbox.Invalid, "", "agent_did") // each would leave a state that no lease restores
}
