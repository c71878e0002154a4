package leasing_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/output"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// written is how much a command of these tests writes: more than the ledger itself keeps.
const written = 70_000

// bounded runs a test on a ledger of each database, with an engine that has these bounds on kept output.
func bounded(t *testing.T, bounds output.Bounds, f func(w *world)) {
	t.Parallel()
	for name, url := range map[string]func(t *testing.T) string{
		"SQLite":     func(*testing.T) string { return "" },
		"PostgreSQL": func(t *testing.T) string { return postgrestest.New(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorldOn(t, url(t), func(w *world) {
				w.rebound(bounds)
				w.environment()
				f(w)
			})
		})
	}
}

// rebound opens the world's engine again with other bounds.
func (w *world) rebound(bounds output.Bounds) {
	w.Helper()
	w.close()
	w.bounds = bounds
	w.open()
}

// writes runs a command in a lease that writes a number of bytes, and returns its id.
func (w *world) writes(leaseID string, bytes int) string {
	w.Helper()
	r, err := w.engine.Exec(w.Context(), sandbox.LeaseRef{ID: leaseID},
		sandbox.ExecRequest{Command: []string{"cat"}, Stdin: strings.NewReader(strings.Repeat("x", bytes))})
	if err != nil {
		w.Fatal(err)
	}
	later(time.Second)
	return r.ExecID
}

// output returns how many bytes of a command's output can be read.
func (w *world) output(leaseID, execID string) (int, error) {
	w.Helper()
	r, err := w.engine.ReadExec(w.Context(),
		sandbox.OutputRequest{ExecRef: sandbox.ExecRef{LeaseID: leaseID, ID: execID}, Stream: sandbox.Stdout})
	if err != nil {
		return 0, err
	}
	defer func() { _ = r.Close() }() // it was only read
	text, err := io.ReadAll(r)
	return len(text), err
}

// wantKept checks that only the last kept of the commands' outputs are kept.
func (w *world) wantKept(leaseID string, execs []string, kept int) {
	w.Helper()
	for i, id := range execs {
		n, err := w.output(leaseID, id)
		if isKept := i >= len(execs)-kept; isKept && (err != nil || n == 0) ||
			!isKept && sandbox.CodeOf(err) != sandbox.OutputExpired {
			w.Errorf("of command %d of %d, where the last %d are kept, %d bytes are read: %v", i+1, len(execs), kept, n, err)
		}
	}
}

// sum returns how much is kept.
func (w *world) sum(scope ledger.KeptScope, id string) (sum ledger.KeptSum) {
	w.Helper()
	err := w.store.Read(w.Context(), func(tx *ledger.Tx) (err error) {
		sum, err = execs.In(tx).KeptSum(scope, id)
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	return sum
}

func TestManyCommandsKeepNoMoreThanALeaseMay(t *testing.T) {
	const wave, kept = 20, 10 // some commands end at the same time
	waves := 4
	if os.Getenv("SANDBOX_TEST_LONG") != "" {
		waves = 50
	}
	bounded(t, output.Bounds{Lease: kept*written + written/2}, func(w *world) {
		w.acquire(ann)
		for i := range waves {
			var running sync.WaitGroup
			for j := range wave {
				running.Go(func() {
					req := sandbox.ExecRequest{
						ID:      fmt.Sprintf("x%d-%d", i, j),
						Command: []string{"cat"},
						Stdin:   strings.NewReader(strings.Repeat("x", written)),
					}
					if _, err := w.engine.Exec(w.Context(), sandbox.LeaseRef{ID: annLease}, req); err != nil {
						w.Error(err)
					}
				})
			}
			running.Wait()
			later(time.Second)
			if sum := w.sum(ledger.KeptOfLease, annLease); sum.Bytes > w.bounds.Lease {
				w.Fatalf("after %d commands the lease keeps %d bytes, more than %d", (i+1)*wave, sum.Bytes, w.bounds.Lease)
			}
		}
		last := w.writes(annLease, written)
		w.wantKept(annLease, []string{"x0-0", "x0-19", fmt.Sprintf("x%d-0", waves-2), last}, 1)
		w.startLoop()
		later(time.Hour)
		if objects := w.bucket.names(); len(objects) != kept {
			w.Errorf("the bucket has %d objects, want %d", len(objects), kept)
		}
		first, err := w.engine.GetExec(w.Context(), sandbox.ExecRef{LeaseID: annLease, ID: "x0-0"})
		if err != nil || first.DroppedAt.IsZero() || !first.Truncated || first.StdoutBytes != written ||
			first.State != sandbox.ExecFinished {
			w.Errorf("the first command is %+v, %v", first, err)
		}
		counts, err := w.engine.Counts(w.Context())
		want := ledger.KeptSum{
			Scope:          ledger.KeptOfLedger,
			Bytes:          kept * written,
			Records:        kept,
			DroppedBytes:   int64(waves*wave+1-kept) * written,
			DroppedRecords: int64(waves*wave + 1 - kept),
		}
		if err != nil || counts.Kept != want {
			w.Errorf("the ledger counts %+v, %v; want %+v", counts.Kept, err, want)
		}
	})
}

func TestAnEnvironmentAndTheLedgerKeepNoMoreThanTheyMay(t *testing.T) {
	bounded(t, output.Bounds{Environment: 3 * written, Ledger: 5 * written}, func(w *world) {
		w.environment(func(p *sandbox.PutEnvironment) { p.ID = "other" })
		w.acquire(ann)
		w.acquire(bob)
		others := w.leased(nil, "other").ID
		bobs := sandbox.LeaseID(bob, game)
		ofAnn := []string{w.writes(annLease, written), w.writes(annLease, written)}
		ofBob := []string{w.writes(bobs, written), w.writes(bobs, written)}
		w.wantKept(annLease, ofAnn, 1) // the environment's oldest is ann's
		w.wantKept(bobs, ofBob, 2)
		ofOther := []string{w.writes(others, written), w.writes(others, written), w.writes(others, written)}
		w.wantKept(annLease, ofAnn, 0) // and so is the ledger's
		w.wantKept(bobs, ofBob, 2)
		w.wantKept(others, ofOther, 3)
	})
}

func TestWhatIsKeptBeyondALoweredBoundIsDropped(t *testing.T) {
	bounded(t, output.Bounds{}, func(w *world) {
		w.acquire(ann)
		var execs []string
		for range 100 {
			execs = append(execs, w.writes(annLease, written/10)) // in the ledger itself
		}
		w.rebound(output.Bounds{Ledger: 5 * written / 10})
		w.startLoop()
		later(time.Minute)
		w.wantKept(annLease, execs, 5)
	})
}

func TestARepeatedCommandWhoseOutputWasDroppedIsNotRunAgain(t *testing.T) {
	bounded(t, output.Bounds{Lease: written}, func(w *world) {
		w.acquire(ann)
		again := func() sandbox.ExecResult {
			w.Helper()
			r, err := w.engine.Exec(w.Context(), sandbox.LeaseRef{ID: annLease},
				sandbox.ExecRequest{ID: "build", Command: []string{"echo", strings.Repeat("x", written-1)}})
			if err != nil {
				w.Fatal(err)
			}
			return r
		}
		if r := again(); len(r.Stdout) != written || r.Truncated {
			w.Fatalf("it wrote %d bytes, truncated %v", len(r.Stdout), r.Truncated)
		}
		later(time.Second)
		w.writes(annLease, written)
		if r := again(); len(r.Stdout) != 0 || !r.Truncated || r.StdoutBytes != written {
			w.Errorf("repeated, it is %+v", r)
		}
	})
}

func TestRecordingsOfSessionsCountAndAreDropped(t *testing.T) {
	const sessions = 4
	typed := strings.Repeat("x", 5<<20) // more events than one transaction drops, as input and as output
	bounded(t, output.Bounds{Lease: 25 << 20}, func(w *world) {
		w.acquire(ann)
		w.startLoop()
		for i := range sessions {
			id := fmt.Sprint("s", i)
			if _, err := w.engine.CreateSession(w.Context(), sandbox.LeaseRef{ID: annLease},
				sandbox.CreateSession{ID: id}); err != nil {
				w.Fatal(err)
			}
			if _, err := w.engine.Exec(w.Context(), sandbox.LeaseRef{ID: annLease},
				sandbox.ExecRequest{Session: id, Command: []string{"cat"}, Stdin: strings.NewReader(typed)}); err != nil {
				w.Fatal(err)
			}
			later(time.Minute)
		}
		if sum := w.sum(ledger.KeptOfLease, annLease); sum.Bytes > w.bounds.Lease || sum.Bytes < w.bounds.Lease/2 {
			w.Errorf("the lease keeps %d bytes, and may keep %d", sum.Bytes, w.bounds.Lease)
		}
		first, last := sandbox.SessionRef{LeaseID: annLease, ID: "s0"},
			sandbox.SessionRef{LeaseID: annLease, ID: fmt.Sprint("s", sessions-1)}
		if _, err := w.engine.ListSessionEvents(w.Context(),
			sandbox.SessionEventFilter{SessionRef: first}); sandbox.CodeOf(err) != sandbox.OutputExpired {
			w.Errorf("the first recording: %v", err)
		}
		if events, err := w.engine.ListSessionEvents(w.Context(), sandbox.SessionEventFilter{SessionRef: last}); err != nil ||
			len(events) == 0 {
			w.Errorf("the last recording has %d events, %v", len(events), err)
		}
		if s, err := w.engine.GetSession(w.Context(), first); err != nil || s.DroppedAt.IsZero() {
			w.Errorf("the first session is %+v, %v", s, err)
		}
		if _, err := w.engine.Exec(w.Context(), sandbox.LeaseRef{ID: annLease},
			sandbox.ExecRequest{Session: "s0", Command: []string{"echo", "on"}}); err != nil {
			w.Errorf("a command in a session whose recording was dropped: %v", err)
		}
	})
}

func TestPurgedSandboxesKeepNoOutput(t *testing.T) {
	bounded(t, output.Bounds{}, func(w *world) {
		w.acquire(ann)
		for range 3 {
			w.writes(annLease, written)
		}
		if sum := w.sum(ledger.KeptOfEnvironment, game); sum.Bytes != 3*written || sum.Records != 3 {
			w.Errorf("the environment keeps %+v", sum)
		}
		if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
			w.Fatal(err)
		}
		w.cleanup = time.Hour
		w.startLoop()
		later(2 * time.Hour)
		for _, sum := range []ledger.KeptSum{
			w.sum(ledger.KeptOfLease, annLease), w.sum(ledger.KeptOfEnvironment, game), w.sum(ledger.KeptOfLedger, ""),
		} {
			if sum.Bytes != 0 || sum.Records != 0 || sum.DroppedBytes != 0 {
				w.Errorf("purged, it keeps %+v", sum)
			}
		}
	})
}

// A command ends, its large output is on its way to the bucket, and its sandbox fails for good and is kept.
func TestTheOutputOfACommandWhoseSandboxIsHaltedIsKept(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(keptFor(time.Hour))
		w.cleanup = time.Hour
		w.startLoop()
		l := w.acquire(ann)
		later(time.Minute)
		for first := time.Now(); time.Since(first) < 5*time.Minute; later(time.Second) {
			if w.lease(annLease).SandboxState == sandbox.SandboxReady {
				w.crash(l.SandboxID, false)
			}
		}
		for w.lease(annLease).SandboxState != sandbox.SandboxReady {
			later(time.Second)
		}
		release := make(chan struct{})
		w.bucket.fault(func(context.Context) error { <-release; return nil })
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = w.engine.Exec(w.Context(), sandbox.LeaseRef{ID: annLease}, // what is recorded counts
				sandbox.ExecRequest{ID: "build", Command: []string{"cat"}, Stdin: strings.NewReader(strings.Repeat("x", written))})
		}()
		later(100 * time.Millisecond)
		w.crash(l.SandboxID, false)
		later(2 * time.Second)
		w.bucket.fault(nil)
		close(release)
		<-done
		x, err := w.engine.GetExec(w.Context(), sandbox.ExecRef{LeaseID: annLease, ID: "build"})
		n, readErr := w.output(annLease, "build")
		if err := errors.Join(err, readErr); err != nil || n != written || x.StdoutBytes != written || x.Truncated {
			t.Errorf("of %d bytes %d are read: %+v, %v", written, n, x, err)
		}
		later(6 * time.Hour)
		if objects := w.bucket.names(); len(objects) != 0 {
			t.Errorf("after the sandbox was purged, the bucket has %v", objects)
		}
	})
}

func TestTheOldestOutputIsDroppedAfterTheClockWasSetBack(t *testing.T) {
	h := ledgertest.NewHost()
	store, _ := h.Open(t, "sqlite://"+filepath.Join(t.TempDir(), "ledger.db"))
	engine, err := leasing.New(leasing.Config{Store: store, Executors: []driver.Executor{fake.New("engine-1", h.Now)},
		Objects: newBucket(t), KeptOutput: output.Bounds{Lease: 2*written + written/2}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = engine.Close() }()
	w := &world{T: t, engine: engine, store: store}
	w.environment()
	w.acquire(ann)
	write := func(id string) {
		if _, err := engine.Exec(t.Context(), sandbox.LeaseRef{ID: annLease}, sandbox.ExecRequest{ID: id,
			Command: []string{"cat"}, Stdin: strings.NewReader(strings.Repeat("x", written))}); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	h.Pass(time.Minute)
	write("second")
	h.Pass(time.Minute)
	h.Step(-10 * time.Minute)
	write("third")
	for _, id := range []string{"first", "second", "third"} {
		if n, err := w.output(annLease, id); (n == written) != (id != "first") {
			t.Errorf("of the output of the %s command %d bytes are kept: %v", id, n, err)
		}
	}
}
