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
	{"ARunCollectsByPattern", aRunCollectsByPattern},
	{"ARunCollectsHardLinksAsFiles", aRunCollectsHardLinksAsFiles},
	{"ARunReportsAnUnreadableFile", aRunReportsAnUnreadableFile},
	{"ARunHasASandboxOfItsOwnChoice", aRunHasASandboxOfItsOwnChoice},
	{"ARunChoosesWhatThereIs", aRunChoosesWhatThereIs},
	{"ARunStreams", aRunStreams},
	{"ARunEndsWithItsCaller", aRunEndsWithItsCaller},
	{"ARunTouchesNoOtherLease", aRunTouchesNoOtherLease},
	{"ARunNamesWrongFields", aRunNamesWrongFields},
}

// run runs a command in the environment that most tests use.
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
		w.Errorf("its lease would end it at %s, or %s without activity", first.Lease.MaxLifetime, first.Lease.TTL)
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
	got := collected(w, &out)
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

// collected lists the files of a tar stream.
func collected(w *world, from io.Reader) (list []string) {
	w.Helper()
	for entries := tar.NewReader(from); ; {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			w.Fatal(err)
		}
		list = append(list, h.Name+"="+string(must(io.ReadAll(entries))(w)))
	}
}

func aRunCollectsByPattern(w *world) {
	w.environment()
	sent := archive(w, "a/one.json", "1", "a/b/two.json", "2", "a/b/two.txt", "no", "a/*.json", "star", "top.json", "top")
	var out bytes.Buffer
	r := w.run(sandbox.RunRequest{
		ExecRequest: command("true"), Files: sent,
		Collect:   []string{"a/**/two.{json,xml}", "t*.json", "a/?", `a/\*.json`, "*.none", "/workspace/none/*"},
		Collected: &out,
	})
	if !slices.Equal(r.Missing, []string{"/workspace/*.none", "/workspace/none/*"}) {
		w.Errorf("missing are %q", r.Missing)
	}
	got, want := collected(w, &out), []string{
		"workspace/a/b/two.json=2", "workspace/top.json=top", "workspace/a/b/two.json=2", "workspace/a/b/two.txt=no",
		"workspace/a/*.json=star",
	}
	files := slices.DeleteFunc(got, func(s string) bool { return strings.HasSuffix(s, "/=") }) // directories
	if !slices.Equal(files, want) {
		w.Errorf("collected %q, want %q", files, want)
	}
	_, err := w.Service.Run(w.Context(), sandbox.RunRequest{EnvironmentID: game, ExecRequest: command("true"),
		Collect: []string{"/etc/*", "a[", "../../etc/*"}, Collected: io.Discard})
	w.wantError(err, sandbox.Invalid, "", "collect[0]", "collect[1]", "collect[2]")
}

// aRunReportsAnUnreadableFile: what a command leaves behind never costs the caller the command's result.
func aRunReportsAnUnreadableFile(w *world) {
	w.environment()
	var sent, out bytes.Buffer
	t := tar.NewWriter(&sent)
	for _, h := range []tar.Header{
		{Name: "out/a.txt", Mode: 0o644}, {Name: "out/b.txt", Mode: 0o200}, {Name: "other/c.txt", Mode: 0o644},
	} {
		if err := t.WriteHeader(&h); err != nil {
			w.Fatal(err)
		}
	}
	if err := t.Close(); err != nil {
		w.Fatal(err)
	}
	r := w.run(sandbox.RunRequest{
		ExecRequest: command("exit", "3"), Files: &sent, Collect: []string{"out", "other"}, Collected: &out,
	})
	if r.ExitCode != 3 || !slices.Equal(r.Missing, []string{"/workspace/out"}) {
		w.Errorf("the run gave %+v", r)
	}
	if got, want := collected(w, &out), []string{"workspace/out/a.txt=", "workspace/other/c.txt="}; !slices.Equal(got, want) {
		w.Errorf("collected %q, want %q", got, want)
	}
}

// aRunCollectsHardLinksAsFiles collects one of two names of a file. A hard link to the other name would be broken.
func aRunCollectsHardLinksAsFiles(w *world) {
	w.environment()
	var sent, out bytes.Buffer
	t := tar.NewWriter(&sent)
	err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "out/a.txt", Mode: 0o644, Size: 4})
	if err == nil {
		_, err = io.WriteString(t, "gold")
	}
	err = errors.Join(err, t.WriteHeader(&tar.Header{Typeflag: tar.TypeLink, Name: "out/b.log", Linkname: "out/a.txt"}))
	if err := errors.Join(err, t.Close()); err != nil {
		w.Fatal(err)
	}
	w.run(sandbox.RunRequest{
		ExecRequest: command("true"), Files: &sent, Collect: []string{"out/*.log", "out/*"}, Collected: &out,
	})
	want := []string{"workspace/out/b.log=gold", "workspace/out/a.txt=gold", "workspace/out/b.log=gold"}
	if got := collected(w, &out); !slices.Equal(got, want) {
		w.Errorf("collected %q, want %q", got, want)
	}
}

func aRunHasASandboxOfItsOwnChoice(w *world) {
	w.environment(func(p *sandbox.PutEnvironment) {
		p.Network, p.Egress = sandbox.NetworkRestricted, &sandbox.Egress{Allow: []sandbox.EgressRule{{Host: "good.test"}}}
		p.WarmPool = &sandbox.WarmPool{Size: 1}
	})
	w.Advance(time.Second)
	less := sandbox.SandboxChoice{
		Network: sandbox.NetworkNone, Resources: sandbox.Resources{MemoryMB: 512, CPUMillis: 500},
	}
	l := w.run(sandbox.RunRequest{ExecRequest: command("true"), Choice: less}).Lease
	if l.Network != sandbox.NetworkNone || l.Resources.MemoryMB != 512 || l.Resources.CPUMillis != 500 ||
		l.Resources.PIDs != sandbox.DefaultResources.PIDs || l.Image != "player" {
		w.Errorf("the run had %+v", l)
	}
	other := sandbox.SandboxChoice{Image: "tools:2", Resources: sandbox.Resources{MemoryMB: 8192}}
	l = w.run(sandbox.RunRequest{ExecRequest: command("true"), Choice: other, MayExceed: true}).Lease
	if l.Image != "tools:2" || l.Resources.MemoryMB != 8192 || l.Network != sandbox.NetworkRestricted {
		w.Errorf("the run had %+v", l)
	}
	if l = w.run(sandbox.RunRequest{ExecRequest: command("true")}).Lease; l.Image != "player" ||
		l.Resources != sandbox.DefaultResources {
		w.Errorf("a run without a choice had %+v", l)
	}
}

func aRunChoosesWhatThereIs(w *world) {
	w.environment(func(p *sandbox.PutEnvironment) { p.Network = sandbox.NetworkRestricted })
	for _, row := range []struct {
		choice sandbox.SandboxChoice
		field  string
	}{
		{sandbox.SandboxChoice{Network: sandbox.NetworkFull}, "network"},
		{sandbox.SandboxChoice{Resources: sandbox.Resources{MemoryMB: -1}}, "resources.memory_mb"},
		{sandbox.SandboxChoice{Resources: sandbox.Resources{DiskMB: 1 << 40}}, "resources.disk_mb"},
	} {
		_, err := w.Service.Run(w.Context(), sandbox.RunRequest{EnvironmentID: game, ExecRequest: command("true"),
			Choice: row.choice, MayExceed: true})
		w.wantError(err, sandbox.Invalid, "", row.field)
	}
	if w.Running() != 0 {
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
	w.wantError(err, sandbox.Invalid, "", "agent_did") // each run would leave a snapshot that no lease restores
}
