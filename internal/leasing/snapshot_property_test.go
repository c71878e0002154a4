package leasing_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestWhateverHappensEachGenerationBeginsWithTheLastPublishedSnapshot does random things to sandboxes that keep
// snapshots, and to their bucket.
func TestWhateverHappensEachGenerationBeginsWithTheLastPublishedSnapshot(t *testing.T) {
	t.Parallel()
	for name, fresh := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check := func(t *testing.T, prop func(*rapid.T)) { rapid.Check(t, prop) }
			if name == "PostgreSQL" {
				check = few
			}
			check(t, func(r *rapid.T) {
				h := newChronicle(t, r, fresh(t))
				defer h.close()
				r.Repeat(map[string]func(*rapid.T){
					"acquire":   func(*rapid.T) { h.acquire() },
					"write":     func(*rapid.T) { h.write() },
					"release":   func(*rapid.T) { h.release() },
					"condition": func(*rapid.T) { h.condition() },
					"sleep":     func(*rapid.T) { h.sleep() },
					"wait":      func(*rapid.T) { h.pass(time.Duration(rapid.IntRange(1, 5400).Draw(r, "seconds")) * time.Second) },
					"crash":     func(*rapid.T) { h.crash() },
					"bucket":    func(*rapid.T) { h.bucketFails(rapid.Bool().Draw(r, "down")) },
					"kills":     func(*rapid.T) { h.killsFail(rapid.Bool().Draw(r, "fail")) },
				})
				h.settle()
			})
		})
	}
}

// chronicle is one random history.
type chronicle struct {
	*rapid.T
	store   *ledger.Store
	backend *fake.Executor
	bucket  *bucket
	engine  *leasing.Service

	mu  sync.Mutex // guards now
	now time.Time

	n       int
	written map[string]string // the story in each sandbox
}

var chronicleGames = []string{"own-game", "shared-1", "shared-2"}

func newChronicle(t *testing.T, r *rapid.T, url string) *chronicle {
	h := &chronicle{
		T:       r,
		now:     time.Date(2026, 8, 15, 12, 0, 0, 0, time.UTC),
		bucket:  newBucket(t),
		written: make(map[string]string),
	}
	clock := func() time.Time { h.mu.Lock(); defer h.mu.Unlock(); return h.now }
	h.backend = fake.New("engine-1", clock)
	var err error
	if h.store, err = ledger.Open(t.Context(), url, ledger.Options{Now: clock}); err != nil {
		r.Fatal(err)
	}
	if h.engine, err = leasing.New(leasing.Config{
		Store:     h.store,
		Executors: []driver.Executor{h.backend},
		Objects:   h.bucket,
	}); err != nil {
		r.Fatal(err)
	}
	for _, id := range chronicleGames {
		spec := &sandbox.SnapshotSpec{RetryFor: sandbox.Duration(time.Hour)}
		if id != "own-game" {
			spec.Scope = sandbox.ScopeAgent
		}
		_, err := h.engine.PutEnvironment(t.Context(), sandbox.PutEnvironment{
			ID:    id,
			Owner: "test",
			EnvironmentSpec: sandbox.EnvironmentSpec{
				Type: sandbox.TypeRPG, Image: "player", Network: sandbox.NetworkNone, SleepMode: sandbox.SleepStop,
				TTL: sandbox.Duration(2 * time.Hour), MaxLifetime: sandbox.Duration(5 * time.Hour), Snapshot: spec},
		})
		if err != nil {
			r.Fatal(err)
		}
	}
	return h
}

func (h *chronicle) close() {
	if err := errors.Join(h.engine.Close(), h.store.Close()); err != nil {
		h.Error(err)
	}
}

func (h *chronicle) lease() (agent, game string, ref sandbox.LeaseRef) {
	agent = fmt.Sprintf("did:plc:a%d", rapid.IntRange(1, 2).Draw(h.T, "agent"))
	game = rapid.SampledFrom(chronicleGames).Draw(h.T, "game")
	return agent, game, sandbox.LeaseRef{ID: sandbox.LeaseID(agent, game)}
}

// expect fails on an error that the situation does not allow.
func (h *chronicle) expect(err error, allowed ...sandbox.Code) bool {
	h.Helper()
	if err == nil {
		return true
	}
	for _, c := range append(allowed, sandbox.Unavailable) { // the bucket or the engine may be down
		if sandbox.CodeOf(err) == c {
			return false
		}
	}
	h.Fatalf("%v (%s)", err, sandbox.CodeOf(err))
	return false
}

func (h *chronicle) acquire() {
	agent, game, _ := h.lease()
	a, err := h.engine.Acquire(h.Context(), sandbox.Acquire{AgentDID: agent, EnvironmentID: game, Owner: "test"})
	if !h.expect(err, sandbox.Failed) || !a.IsNew { // it crashed at its beginning
		return
	}
	begins, _ := h.backend.FileOf(a.Lease.SandboxID, story)
	h.written[a.Lease.SandboxID] = begins
	from := a.Lease.Snapshot.RestoredFrom
	if from == nil || !h.savedToTheEnd(from.SandboxID) {
		return
	}
	if ended, known := h.written[from.SandboxID]; known && begins != ended {
		h.Fatalf("%s begins with %q, and %s had ended with %q", a.Lease.SandboxID, begins, from.SandboxID, ended)
	}
}

// savedToTheEnd reports whether a sandbox was saved after its lease had ended.
func (h *chronicle) savedToTheEnd(sandboxID string) bool {
	events, err := h.engine.ListEvents(h.Context(), sandbox.EventFilter{SandboxID: sandboxID})
	h.expect(err)
	for _, e := range events {
		if e.Type == sandbox.EventSnapshotSaved && bytes.Contains(e.Data, []byte(`"last":true`)) {
			return true
		}
	}
	return false
}

// write changes the story of a sandbox through the files API.
func (h *chronicle) write() {
	_, _, ref := h.lease()
	l, err := h.engine.GetLease(h.Context(), ref.ID)
	if !h.expect(err, sandbox.NotFound) || l.Status != sandbox.LeaseActive {
		return // a use waits for the next retry of the beginning, and here time stands still
	}
	h.n++
	text := fmt.Sprint(h.n)
	if h.expect(h.engine.WriteFiles(h.Context(), ref, "/data/memory", oneFile("story.md", text)), sandbox.NotFound,
		sandbox.LeaseEnded, sandbox.Conflict) {
		h.written[l.SandboxID] = text
	}
}

func oneFile(name, text string) io.Reader {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text))})
	_, _ = io.WriteString(w, text)
	_ = w.Close() // a buffer never fails
	return &b
}

func (h *chronicle) release() {
	_, _, ref := h.lease()
	_, err := h.engine.Release(h.Context(), ref)
	h.expect(err, sandbox.NotFound)
}

func (h *chronicle) condition() {
	agent, game, _ := h.lease()
	h.n++
	id := fmt.Sprint(h.n)
	_, err := h.engine.Deliver(h.Context(), sandbox.Delivery{
		ID:   id,
		Body: []byte(id),
		Condition: sandbox.Condition{Type: "agent.death",
			Timestamp: h.now, Data: sandbox.ConditionData{EnvironmentID: game, AgentDID: agent}},
	})
	h.expect(err)
}

func (h *chronicle) sleep() {
	_, _, ref := h.lease()
	l, err := h.engine.GetLease(h.Context(), ref.ID)
	if h.expect(err, sandbox.NotFound) && l.Status == sandbox.LeaseActive {
		_, err = h.engine.Sleep(h.Context(), ref)
		h.expect(err, sandbox.NotFound, sandbox.LeaseEnded)
	}
}

// crash makes a sandbox stop on its own, or vanish.
func (h *chronicle) crash() {
	_, _, ref := h.lease()
	l, err := h.engine.GetLease(h.Context(), ref.ID)
	if !h.expect(err, sandbox.NotFound) {
		return
	}
	if rapid.Bool().Draw(h.T, "vanish") {
		h.backend.Remove(l.SandboxID)
	} else {
		h.backend.Change(l.SandboxID, func(o *driver.Observation) { o.State, o.StoppedAt = sandbox.StateStopped, h.now })
	}
	_, err = h.engine.ObserveLease(h.Context(), ref.ID)
	h.expect(err)
}

func (h *chronicle) bucketFails(fail bool) {
	h.bucket.fail(nil)
	if fail {
		h.bucket.fail(bucketDown)
	}
}

func (h *chronicle) killsFail(fail bool) {
	h.backend.Fail(fake.OpKill, nil)
	if fail {
		h.backend.Fail(fake.OpKill, away)
	}
}

// pass lets time pass, and does the due work.
func (h *chronicle) pass(d time.Duration) {
	end := h.now.Add(d)
	h.expect(h.engine.Resync(h.Context(), sandbox.Docker))
	for {
		ids, next, err := h.engine.ListDue(h.Context(), sandbox.Docker, sandbox.MaxPage)
		h.expect(err)
		for _, id := range ids {
			// The lease shows a crash during a step.
			h.expect(h.engine.Work(h.Context(), id), sandbox.NotFound, sandbox.Conflict)
		}
		to := next
		switch {
		case len(ids) > 0:
			continue
		case next.IsZero() || next.After(end):
			to = end
		}
		h.mu.Lock()
		h.now = to
		h.mu.Unlock()
		if to.Equal(end) {
			return
		}
	}
}

// settle ends everything, and checks the beginning of each generation.
func (h *chronicle) settle() {
	h.bucketFails(false)
	h.killsFail(false)
	h.pass(6 * time.Hour)
	if err := h.engine.CollectSnapshots(h.Context()); err != nil {
		h.Fatal(err)
	}
	if n := len(h.backend.Sandboxes()); n != 0 {
		h.Fatalf("%d sandboxes are left", n)
	}
	keys := h.checkEvents()
	if names := h.bucket.names(); len(names) != keys {
		h.Fatalf("%d objects are kept for %d states", len(names), keys)
	}
}

// checkEvents compares restored snapshots with those published before, and returns their number.
func (h *chronicle) checkEvents() int {
	events, err := h.engine.ListEvents(h.Context(), sandbox.EventFilter{})
	h.expect(err)
	published := make(map[string]string) // sums, by key
	savers := make(map[string]string)    // sandboxes, by key
	for _, e := range events {
		var data struct {
			Key, SHA256 string
			From        *sandbox.Snapshot
			Last        bool
		}
		if err := json.Unmarshal(e.Data, &data); len(e.Data) > 0 && err != nil {
			h.Fatal(err)
		}
		switch e.Type {
		case sandbox.EventSnapshotSaved:
			published[data.Key], savers[data.Key] = data.SHA256, e.SandboxID
		case sandbox.EventSnapshotRestored, sandbox.EventSnapshotCopied:
			if data.From == nil && published[data.Key] == "" {
				break
			}
			if data.From == nil || data.From.SHA256 != published[data.Key] || data.From.SandboxID != savers[data.Key] {
				h.Fatalf("%s began with %+v, and %s had been published last, by %s",
					e.SandboxID, data.From, published[data.Key], savers[data.Key])
			}
		case sandbox.EventReady:
			h.checkBeginning(events, e, published)
		}
	}
	return len(published)
}

// checkBeginning checks that a generation whose key had a snapshot says which one it began with.
func (h *chronicle) checkBeginning(events []sandbox.Event, ready sandbox.Event, published map[string]string) {
	agent, game, err := sandbox.ParseLeaseID(ready.LeaseID)
	h.expect(err)
	key := agent
	if game == "own-game" {
		key = ready.LeaseID
	}
	for _, e := range events {
		if e.SandboxID == ready.SandboxID &&
			(e.Type == sandbox.EventSnapshotRestored || e.Type == sandbox.EventSnapshotCopied) {
			return
		}
	}
	if published[key] != "" {
		h.Fatalf("%s began with nothing, and %s had been published", ready.SandboxID, published[key])
	}
}
