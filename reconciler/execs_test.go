package reconciler_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestKillingTheReconcilerLosesNeitherCommandsNorTheirOutput kills the reconciler while a detached and an awaited
// command write, and starts it again. Both run to their end, and all of their output is there, which is more than the
// ledger itself stores.
func TestKillingTheReconcilerLosesNeitherCommandsNorTheirOutput(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.environment("catan")
	ref := sandbox.LeaseRef{ID: w.acquire(agent(1), "catan").ID}
	const script = `i=0; while [ $i -lt 60 ]; do echo "line $i of a command that is not to be lost"; head -c 500 /dev/zero | tr '\0' x; echo; echo problem $i >&2; i=$((i+1)); sleep 0.2; done; exit 3`
	req := sandbox.ExecRequest{ID: "detached", Command: []string{"sh", "-c", script}}
	if x, err := w.service.StartExec(t.Context(), ref, req); err != nil || x.State != sandbox.ExecRunning {
		t.Fatalf("%+v, %v", x, err)
	}
	awaited := req
	awaited.ID = "awaited"
	cut := make(chan error, 1)
	go func() {
		_, err := w.service.Exec(t.Context(), ref, awaited)
		cut <- err
	}()
	read := func(id string, stream sandbox.ExecStream, offset int64, follow bool) string {
		t.Helper()
		r, err := w.service.ReadExec(t.Context(), sandbox.OutputRequest{
			ExecRef: sandbox.ExecRef{LeaseID: ref.ID, ID: id},
			Stream:  stream,
			Offset:  offset,
			Follow:  follow,
		})
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Errorf("reading what %s wrote: %v", id, err)
		}
		_ = r.Close()
		return string(b)
	}
	for _, id := range []string{"detached", "awaited"} {
		w.eventually(id+" has written", func() bool {
			_, err := w.service.GetExec(t.Context(), sandbox.ExecRef{LeaseID: ref.ID, ID: id})
			return err == nil && strings.Contains(read(id, sandbox.Stdout, 0, false), "line 3")
		})
	}
	w.kill()
	if err := <-cut; sandbox.CodeOf(err) != sandbox.UnknownOutcome {
		t.Errorf("the caller gets %v", err)
	}
	w.start()
	began := time.Now()
	res, err := w.service.Exec(t.Context(), ref, awaited) // the same command, with its output from the start
	if err != nil || res.ExitCode != 3 {
		t.Fatalf("requested again, the command ended with %d, %v", res.ExitCode, err)
	}
	t.Logf("it ended %v after the restart", time.Since(began))
	var stdout, stderr bytes.Buffer
	for i := range 60 {
		fmt.Fprintf(&stdout, "line %d of a command that is not to be lost\n%s\n", i, strings.Repeat("x", 500))
		fmt.Fprintf(&stderr, "problem %d\n", i)
	}
	if string(res.Stdout) != stdout.String() || string(res.Stderr) != stderr.String() {
		t.Errorf("it wrote %d and %d bytes, want %d and %d", len(res.Stdout), len(res.Stderr), stdout.Len(), stderr.Len())
	}
	if got := read("detached", sandbox.Stdout, 1000, true); got != stdout.String()[1000:] {
		t.Errorf("the detached one wrote %d bytes after 1000, want %d", len(got), stdout.Len()-1000)
	}
	if _, err := w.service.Release(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"detached", "awaited"} {
		x, err := w.service.GetExec(t.Context(), sandbox.ExecRef{LeaseID: ref.ID, ID: id})
		if err != nil || x.State != sandbox.ExecFinished || x.ExitCode == nil || *x.ExitCode != 3 || x.Truncated ||
			x.StdoutBytes != int64(stdout.Len()) {
			t.Errorf("%s: %+v, %v", id, x, err)
		}
		if got := read(id, sandbox.Stdout, 0, false); got != stdout.String() { // the sandbox is gone
			t.Errorf("for %s, %d of %d bytes are stored", id, len(got), stdout.Len())
		}
		if got := read(id, sandbox.Stderr, 0, false); got != stderr.String() {
			t.Errorf("of %s, %q is kept", id, got)
		}
	}
	events, err := w.service.ListEvents(t.Context(), sandbox.EventFilter{LeaseID: ref.ID})
	if err != nil {
		t.Fatal(err)
	}
	count := map[sandbox.EventType]int{}
	for _, e := range events {
		count[e.Type]++
	}
	if count[sandbox.EventExecStarted] != 2 || count[sandbox.EventExecFinished] != 2 {
		t.Errorf("the events are %v", count)
	}
}
