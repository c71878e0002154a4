package leasing_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (w *world) session(c sandbox.CreateSession) sandbox.Session {
	w.Helper()
	s, err := w.engine.CreateSession(w.Context(), sandbox.LeaseRef{ID: annLease}, c)
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// line runs a line in the shell of session s and returns its output.
func (w *world) line(line string) string {
	w.Helper()
	r, err := w.engine.Exec(w.Context(), sandbox.LeaseRef{ID: annLease}, sandbox.ExecRequest{Session: "s", Shell: line})
	if err != nil {
		w.Fatal(err)
	}
	return string(r.Stdout)
}

// recording returns the data of the events of session s of one type, and fails if the sequence has a gap.
func recording(t *testing.T, e *leasing.Service, kind sandbox.SessionEventType) string {
	t.Helper()
	var data strings.Builder
	f := sandbox.SessionEventFilter{SessionRef: sandbox.SessionRef{LeaseID: annLease, ID: "s"}}
	for {
		events, err := e.ListSessionEvents(t.Context(), f)
		if err != nil {
			t.Errorf("reading the recording after %d: %v", f.After, err)
			return ""
		}
		for _, ev := range events {
			if ev.Sequence != f.After+1 {
				t.Errorf("event %d follows %d", ev.Sequence, f.After)
			}
			f.After = ev.Sequence
			if ev.Type == kind {
				data.Write(ev.Data)
			}
		}
		if len(events) == 0 {
			return data.String()
		}
	}
}

func TestASessionOutlivesSleepStopAndItsProcess(t *testing.T) {
	twoProcesses(t, func(w, other *world) {
		w.session(sandbox.CreateSession{ID: "s", Env: map[string]string{"TURN": "1"}})
		w.line("cd maps; export ONLY=here")
		h := driver.Handle{
			LedgerID:      w.store.ID(),
			EnvironmentID: game,
			SandboxID:     w.lease(annLease).SandboxID,
			Instance:      "engine-1",
		}
		for _, mode := range []sandbox.SleepMode{sandbox.SleepPause, sandbox.SleepStop} {
			if err := w.backend.Sleep(w.Context(), h, mode); err != nil {
				w.Fatal(err)
			}
			if err := w.engine.Look(w.Context(), h.SandboxID); err != nil {
				w.Fatal(err)
			}
			if got := w.line("pwd; echo $TURN $ONLY"); got != "/workspace/maps\n1 here\n" {
				w.Errorf("after %s it has %q", mode, got)
			}
		}
		w.cutOff()
		if got := other.line("pwd; echo $TURN $ONLY"); got != "/workspace/maps\n1 here\n" {
			w.Errorf("in another process it has %q", got)
		}
	})
}

// TestAReplicaThatTakesOverACommandContinuesItsRecording: nothing is recorded twice, nothing is missing, and the
// session keeps the state that the line leaves.
func TestAReplicaThatTakesOverACommandContinuesItsRecording(t *testing.T) {
	twoProcesses(t, func(w, other *world) {
		w.session(sandbox.CreateSession{ID: "s"})
		x := w.start(sandbox.ExecRequest{Session: "s", Shell: "cd maps; echo hello; sleep 5s"})
		later(time.Second)
		w.cutOff()
		other.startLoop()
		later(time.Minute)
		other.wantExec(x.ID, sandbox.ExecFinished)
		if in, out := recording(w.T, other.engine, sandbox.SessionInput), recording(w.T, other.engine,
			sandbox.SessionOutput); in != "cd maps; echo hello; sleep 5s\n" || out != "hello\n" {
			w.Errorf("recorded are %q and %q", in, out)
		}
		if got := other.line("pwd"); got != "/workspace/maps\n" {
			w.Errorf("the next line begins in %q", got)
		}
	})
}

func TestTheLedgerHoldsNoValueOfASessionInClear(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		w.session(sandbox.CreateSession{ID: "s", Env: map[string]string{"TOKEN": secretValue}})
		w.line("export COPY=$TOKEN; export MORE=1")
		files, err := filepath.Glob(w.path + "*") // WAL and key included
		if err != nil || len(files) < 2 {
			w.Fatalf("the ledger's files are %v: %v", files, err)
		}
		for _, f := range files {
			content, err := os.ReadFile(f)
			if err != nil {
				w.Fatal(err)
			}
			if bytes.Contains(content, []byte(secretValue)) {
				w.Errorf("%s holds the value", f)
			}
		}
		if got := w.line("echo $COPY"); got != secretValue+"\n" {
			w.Errorf("it has %q", got)
		}
		if got := recording(w.T, w.engine, sandbox.SessionOutput); got != secretValue+"\n" { // the line has printed it
			w.Errorf("recorded is %q", got)
		}
	})
}

func TestVariablesOfSessionsAreSealedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		w.session(sandbox.CreateSession{ID: "s", Env: map[string]string{"TOKEN": secretValue}})
		w.session(sandbox.CreateSession{ID: "closed", Env: map[string]string{"TOKEN": secretValue}})
		if _, err := w.engine.CloseSession(w.Context(), sandbox.SessionRef{LeaseID: annLease, ID: "closed"}); err != nil {
			w.Fatal(err)
		}
		old, err := os.ReadFile(w.path + ".key")
		if err != nil {
			w.Fatal(err)
		}
		fresh := w.path + ".new"
		if _, err := seal.InFile(fresh, true).Seal(nil, "only to make it"); err != nil {
			w.Fatal(err)
		}
		young, err := os.ReadFile(fresh)
		if err != nil {
			w.Fatal(err)
		}
		turn := func(content ...[]byte) {
			if err := os.WriteFile(w.path+".key", bytes.Join(content, nil), 0o600); err != nil {
				w.Fatal(err)
			}
			if err := w.engine.Close(); err != nil {
				w.Fatal(err)
			}
			w.engine = w.newEngine(w.store)
		}
		turn(young, old)
		if n, err := w.engine.ResealSecrets(w.Context()); n != 1 || err != nil { // a closed one has no values
			w.Errorf("%d were sealed anew, %v", n, err)
		}
		turn(young)
		if got := w.line("echo $TOKEN"); got != secretValue+"\n" {
			w.Errorf("without the old key it has %q", got)
		}
	})
}

func TestARecordingIsBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		w.session(sandbox.CreateSession{ID: "s"})
		text := strings.Repeat("0123456789abcdef", 9<<16) // 9 MiB, which are input and output
		r, err := w.engine.Exec(w.Context(), sandbox.LeaseRef{ID: annLease},
			sandbox.ExecRequest{Session: "s", Command: []string{"cat"}, Stdin: strings.NewReader(text), OutputLimit: len(text)})
		if err != nil || string(r.Stdout) != text {
			w.Fatalf("%d bytes were written: %v", len(r.Stdout), err)
		}
		w.line("echo more")
		s, err := w.engine.GetSession(w.Context(), sandbox.SessionRef{LeaseID: annLease, ID: "s"})
		if err != nil || !s.Full || s.RecordedBytes > sandbox.MaxSessionRecording+1024 ||
			s.RecordedBytes < sandbox.MaxSessionRecording-16<<10 {
			w.Errorf("the session is %+v, %v", s, err)
		}
		if in, out := recording(w.T, w.engine, sandbox.SessionInput), recording(w.T, w.engine,
			sandbox.SessionOutput); in != "cat\n"+text || !strings.HasPrefix(text, out) || out == text || out == "" {
			w.Errorf("recorded are %d and %d bytes", len(in), len(out))
		}
		if said := recording(w.T, w.engine, sandbox.SessionSystem); !strings.Contains(said, "is full") ||
			strings.Count(said, "\n") > 1 {
			w.Errorf("it is said that %q", said)
		}
	})
}

// A command that writes faster than can be recorded waits for the ledger, but not longer than the engine lives.
func TestARecordingThatCannotBeWrittenHoldsUpNoShutdown(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		w.session(sandbox.CreateSession{ID: "s"})
		ctx, leave := context.WithCancel(w.Context())
		begun, ended, free := make(chan struct{}), make(chan struct{}), make(chan struct{})
		typed := io.MultiReader(opened{begun}, strings.NewReader(strings.Repeat("x", 4<<20)))
		go func() {
			defer close(ended)
			_, _ = w.engine.Exec(ctx, sandbox.LeaseRef{ID: annLease},
				sandbox.ExecRequest{Session: "s", Command: []string{"cat"}, Stdin: typed})
		}()
		<-begun
		go func() {
			_ = w.store.Write(w.Context(), func(*ledger.Tx) error { <-free; return nil })
		}()
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- w.engine.Close() }()
		synctest.Wait()
		close(free)
		synctest.Wait()
		leave()
		<-ended // or the bubble is deadlocked
		if err := <-closed; err != nil {
			w.Fatal(err)
		}
		w.engine = w.newEngine(w.store)
	})
}

// opened is an empty reader that signals when it is read.
type opened struct{ told chan struct{} }

func (o opened) Read([]byte) (int, error) {
	close(o.told)
	return 0, io.EOF
}

func TestRecordingsOfPurgedSandboxesAreRemoved(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		w.session(sandbox.CreateSession{ID: "s"})
		_, err := w.engine.Exec(w.Context(), sandbox.LeaseRef{ID: annLease},
			sandbox.ExecRequest{Session: "s", Command: []string{"cat"}, Stdin: strings.NewReader(strings.Repeat("x", 6<<20))})
		if err != nil {
			w.Fatal(err)
		}
		if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
			w.Fatal(err)
		}
		w.cleanup = time.Hour
		w.startLoop()
		later(2 * time.Hour)
		if _, err := w.engine.GetSession(w.Context(),
			sandbox.SessionRef{LeaseID: annLease, ID: "s"}); sandbox.ReasonOf(err) != sandbox.ReasonSessionNotFound {
			w.Errorf("the session is still there: %v", err)
		}
		if l := w.lease(annLease); l.PurgedAt.IsZero() {
			w.Errorf("the sandbox is not retired: %+v", l)
		}
	})
}

// TestARecordingHasNothingTwiceWhenAnswersOfTheDatabaseAreLost types slowly, while some commits succeed without an
// answer.
func TestARecordingHasNothingTwiceWhenAnswersOfTheDatabaseAreLost(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	proxy := postgrestest.NewProxy(t, server)
	store, err := ledger.Open(t.Context(), proxy.Through(t, server.URL(t)), ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := leasing.New(leasing.Config{Store: store, Executors: []driver.Executor{fake.New("engine-1", nil)}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err = e.PutEnvironment(t.Context(), sandbox.PutEnvironment{
		ID:              game,
		Owner:           "test",
		EnvironmentSpec: sandbox.EnvironmentSpec{Type: sandbox.TypeCatan, Image: "player", Network: sandbox.NetworkNone},
	})
	must(err)
	_, err = e.Acquire(t.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test"})
	must(err)
	_, err = e.CreateSession(t.Context(), sandbox.LeaseRef{ID: annLease}, sandbox.CreateSession{ID: "s"})
	must(err)
	typed, keys := io.Pipe()
	go func() {
		defer keys.Close()
		for i := 0; proxy.LeftToLose() > 0 || i < 20; i++ {
			if i == 5 { // by then the command runs
				proxy.LoseCommits(3)
			}
			if _, err := io.WriteString(keys, strings.Repeat(string(rune('a'+i%26)), 100)); err != nil {
				return
			}
			time.Sleep(30 * time.Millisecond) //nolint:forbidigo // the pace of typing
		}
	}()
	r, err := e.Exec(t.Context(), sandbox.LeaseRef{ID: annLease},
		sandbox.ExecRequest{Session: "s", Command: []string{"cat"}, Stdin: typed})
	must(err)
	if got := recording(t, e, sandbox.SessionInput); got != "cat\n"+string(r.Stdout) || len(r.Stdout) < 2000 {
		t.Errorf("typed were %d bytes, and %d are recorded", len(r.Stdout), len(got)-4)
	}
	if got := recording(t, e, sandbox.SessionOutput); got != string(r.Stdout) {
		t.Errorf("of %d bytes of output, %d are recorded", len(r.Stdout), len(got))
	}
}
