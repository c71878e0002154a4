package reconciler_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// line runs a line in the shell of a session and returns its output.
func (w *world) line(lease, session, line string) string {
	w.Helper()
	r, err := w.service.Exec(w.Context(), sandbox.LeaseRef{ID: lease}, sandbox.ExecRequest{Session: session, Shell: line})
	if err != nil {
		w.Fatal(err)
	}
	return string(r.Stdout) + string(r.Stderr)
}

// TestSessionsKeepTheirVariablesAndDirectoryApart tests real shells, across a stop.
func TestSessionsKeepTheirVariablesAndDirectoryApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.environment("catan", func(p *sandbox.PutEnvironment) { p.SleepMode = sandbox.SleepStop })
	ref := sandbox.LeaseRef{ID: w.acquire(agent(1), "catan").ID}
	for _, id := range []string{"one", "two"} {
		if _, err := w.service.CreateSession(t.Context(), ref,
			sandbox.CreateSession{ID: id, Env: map[string]string{"TURN": id}}); err != nil {
			t.Fatal(err)
		}
	}
	w.line(ref.ID, "one", "mkdir -p sub && cd sub && export ONLY='of one' COUNT=1")
	w.line(ref.ID, "one", "export COUNT=$((COUNT+1)); unset TURN; SILENT=1")
	look := func() {
		t.Helper()
		const show = `echo "$TURN|$ONLY|$COUNT|$SILENT|$(pwd)"`
		for session, want := range map[string]string{"one": "|of one|2||/workspace/sub\n", "two": "two||||/workspace\n"} {
			if got := w.line(ref.ID, session, show); got != want {
				t.Errorf("session %s has %q, want %q", session, got, want)
			}
		}
		if got := w.exec(ref.ID, "sh", "-c", show); strings.TrimSpace(got) != "||||/workspace" {
			t.Errorf("a command without a session has %q", got)
		}
	}
	look()
	if _, err := w.service.Sleep(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	look() // wakes it
	w.kill()
	w.start()
	look()
	if got := w.line(ref.ID, "two", "cd /etc"); got != "" {
		t.Errorf("it wrote %q", got)
	}
	look()
}

// TestKillingTheReconcilerLosesNothingOfARecording kills the reconciler while a line writes and viewers watch. The
// recording is complete and has no duplicates. Every viewer sees the same, and the session keeps the effects of the
// line.
func TestKillingTheReconcilerLosesNothingOfARecording(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.environment("catan")
	ref := sandbox.LeaseRef{ID: w.acquire(agent(1), "catan").ID}
	const secret = "no-file-holds-this-value"
	s, err := w.service.CreateSession(t.Context(), ref,
		sandbox.CreateSession{ID: "turn-1", Env: map[string]string{"TOKEN": secret}})
	if err != nil {
		t.Fatal(err)
	}
	const line = `i=0; while [ $i -lt 60 ]; do echo "line $i: $(head -c 500 /dev/zero | tr '\0' x)"; echo problem $i >&2; i=$((i+1)); sleep 0.2; done; export DONE=$i`
	x, err := w.service.StartExec(t.Context(), ref, sandbox.ExecRequest{Session: "turn-1", Shell: line})
	if err != nil {
		t.Fatal(err)
	}
	session := sandbox.SessionRef{LeaseID: ref.ID, ID: s.ID}
	recorded := func(after int64) (all []sandbox.SessionEvent) {
		t.Helper()
		for {
			page, err := w.service.ListSessionEvents(t.Context(), sandbox.SessionEventFilter{SessionRef: session, After: after})
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				return all
			}
			all, after = append(all, page...), page[len(page)-1].Sequence
		}
	}
	w.eventually("it is recorded while it runs", func() bool {
		return strings.Contains(written(recorded(0), sandbox.SessionOutput), "line 5:")
	})
	before := recorded(0)
	w.kill()
	w.start()
	var viewers sync.WaitGroup
	seen := make([][]sandbox.SessionEvent, 2)
	for i := range seen {
		viewers.Go(func() {
			// One follower starts at the beginning, the other at its last position.
			f := sandbox.SessionEventFilter{SessionRef: session, After: before[len(before)-1].Sequence * int64(i)}
			if err := w.service.FollowSessionEvents(t.Context(), f, func(e sandbox.SessionEvent) error {
				seen[i] = append(seen[i], e)
				return nil
			}); err != nil {
				t.Errorf("viewer %d: %v", i, err)
			}
		})
	}
	w.eventually("the line has ended", func() bool {
		got, err := w.service.GetExec(t.Context(), sandbox.ExecRef{LeaseID: ref.ID, ID: x.ID})
		return err == nil && got.State == sandbox.ExecFinished && got.ExitCode != nil && *got.ExitCode == 0
	})
	if got := w.line(ref.ID, "turn-1", "echo $DONE"); got != "60\n" {
		t.Errorf("the next line has %q", got)
	}
	if _, err := w.service.CloseSession(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	viewers.Wait()
	all := recorded(0)
	var stdout, stderr bytes.Buffer
	for i := range 60 {
		fmt.Fprintf(&stdout, "line %d: %s\n", i, strings.Repeat("x", 500))
		fmt.Fprintf(&stderr, "problem %d\n", i)
	}
	if got := written(all, sandbox.SessionOutput); got != stdout.String()+"60\n" {
		t.Errorf("%d bytes of output are recorded, want %d", len(got), stdout.Len()+3)
	}
	if got := written(all, sandbox.SessionError); got != stderr.String() {
		t.Errorf("%d bytes of errors are recorded, want %d", len(got), stderr.Len())
	}
	for i, got := range seen {
		want := all[int(before[len(before)-1].Sequence)*i:]
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("viewer %d saw %d events, want %d", i, len(got), len(want))
		}
	}
	for i := range all {
		if all[i].Sequence != int64(i+1) || strings.Contains(string(all[i].Data), secret) {
			t.Errorf("event %d has sequence %d: %q", i, all[i].Sequence, all[i].Data)
		}
	}
	t.Logf("%d events hold %d bytes", len(all), stdout.Len()+stderr.Len())
}

// written joins the data of the events of one type.
func written(events []sandbox.SessionEvent, kind sandbox.SessionEventType) string {
	var b strings.Builder
	for _, e := range events {
		if e.Type == kind {
			b.Write(e.Data)
		}
	}
	return b.String()
}
