package leasing_test

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/output"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gitmirror"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/loop"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// world is one ledger on disk, one in-memory backend, and a clock that jumps when all goroutines wait.
type world struct {
	*testing.T
	path    string // of the ledger's files
	url     string // of the ledger
	store   *ledger.Store
	backend *fake.Executor
	beside  []driver.Executor // other backends, for engines that are opened from now on
	bucket  *bucket
	observe lifecycle.Observer // for engines that are opened from now on
	passes  loop.Observer      // for loops that are started from now on
	engine  *leasing.Service
	stop    func()
	now     func() time.Time // the ledger's clock
	poll    time.Duration    // the loop's backstop
	resync  time.Duration    // pace of resyncs; zero is the loop's default
	workers int              // of the loop, for each backend; zero is the loop's default
	bounds  output.Bounds
	mirrors *gitmirror.Store // for engines that are opened from now on
	cleanup time.Duration    // how long a loop keeps destroyed sandboxes; zero keeps them
	reserve int64            // of the ledger's disk
	n       int
}

const (
	ann  = "did:plc:ann"
	bob  = "did:plc:bob"
	game = "catan-7"
)

var annLease = sandbox.LeaseID(ann, game)

// inWorld runs a test in a bubble with its own time. The loop is not running.
func inWorld(t *testing.T, f func(w *world)) {
	t.Parallel()
	inWorldOn(t, "", f)
}

// inWorldOn is inWorld on the ledger at a URL.
func inWorldOn(t *testing.T, url string, f func(w *world)) {
	path := filepath.Join(memoryDir(t), "ledger.db")
	if url == "" {
		ledgertest.CreateFile(t, path)
	}
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, path: path, url: cmp.Or(url, "sqlite://"+path), backend: fake.New("engine-1", nil), stop: func() {},
			bucket: newBucket(t), now: time.Now, poll: time.Minute}
		w.open()
		defer w.close()
		f(w)
	})
}

func (w *world) open() {
	w.Helper()
	store, err := ledger.Open(w.Context(), w.url,
		ledger.Options{Now: w.now, Poll: time.Hour, NoListen: true, Reserve: w.reserve})
	if err != nil {
		w.Fatal(err)
	}
	w.store = store
	w.engine = w.newEngine(store)
}

func (w *world) newEngine(store *ledger.Store) *leasing.Service {
	w.Helper()
	e, err := leasing.New(leasing.Config{
		Store:      store,
		Executors:  append([]driver.Executor{w.backend}, w.beside...),
		Objects:    w.bucket,
		PriceBooks: map[sandbox.Backend]sandbox.PriceBook{sandbox.Docker: pricing.Cloudflare()},
		Version:    "test",
		Keys:       seal.InFile(w.path+".key", true),
		Observer:   w.observe,
		KeptOutput: w.bounds,
		Mirrors:    w.mirrors,
	})
	if err != nil {
		w.Fatal(err)
	}
	return e
}

func (w *world) close() {
	w.stop()
	if err := w.engine.Close(); err != nil {
		w.Error(err)
	}
	if err := w.store.Close(); err != nil {
		w.Error(err)
	}
}

// startLoop runs a reconciliation loop until the world ends or the returned function is called.
func (w *world) startLoop() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = loop.New(w.engine,
			loop.Config{Workers: w.workers, Poll: w.poll, ResyncEvery: w.resync, CleanupTTL: w.cleanup, EgressEvery: w.resync,
				BudgetEvery: w.resync, Observer: w.passes}).
			Run(ctx)
	}()
	w.stop = func() { cancel(); <-done; w.stop = func() {} }
	synctest.Wait()
}

// startSlowLoop is startLoop for tests of days, for which a resync every 30 s and a poll every minute would only cost
// time.
func (w *world) startSlowLoop() {
	w.resync, w.poll = time.Hour, time.Hour
	w.startLoop()
}

// environment creates an environment. change may modify its defaults.
func (w *world) environment(change ...func(p *sandbox.PutEnvironment)) {
	w.Helper()
	p := sandbox.PutEnvironment{ID: game, Owner: "test", EnvironmentSpec: sandbox.EnvironmentSpec{
		Type: sandbox.TypeCatan, Image: "player", Network: sandbox.NetworkNone}}
	for _, c := range change {
		c(&p)
	}
	if _, err := w.engine.PutEnvironment(w.Context(), p); err != nil {
		w.Fatal(err)
	}
}

// awakeFor makes sandboxes of an environment stay awake for up to a time, used or not.
func awakeFor(d time.Duration) func(p *sandbox.PutEnvironment) {
	return func(p *sandbox.PutEnvironment) {
		p.SleepAfter, p.TTL, p.MaxLifetime = new(sandbox.Duration), sandbox.Duration(d), sandbox.Duration(d)
	}
}

func (w *world) acquire(agent string) sandbox.Lease {
	w.Helper()
	a, err := w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: agent, EnvironmentID: game, Owner: "test"})
	if err != nil {
		w.Fatal(err)
	}
	return a.Lease
}

func (w *world) lease(id string) sandbox.Lease {
	w.Helper()
	l, err := w.engine.GetLease(w.Context(), id)
	if err != nil {
		w.Fatal(err)
	}
	return l
}

func (w *world) exec(id string, command ...string) sandbox.ExecResult {
	w.Helper()
	r, err := w.engine.Exec(w.Context(), sandbox.LeaseRef{ID: id},
		sandbox.ExecRequest{Command: command, Timeout: sandbox.Duration(23 * time.Hour)})
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// condition delivers a condition that happens now.
func (w *world) condition(kind, agent string) sandbox.Receipt {
	w.Helper()
	w.n++
	r, err := w.engine.Deliver(w.Context(), sandbox.Delivery{
		ID:     fmt.Sprintf("msg_%d", w.n),
		Body:   []byte(kind),
		Source: "test",
		Condition: sandbox.Condition{
			Type:      kind,
			Timestamp: time.Now(),
			Data:      sandbox.ConditionData{EnvironmentID: game, AgentDID: agent},
		},
	})
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// want checks a lease's status and kind of ending.
func (w *world) want(l sandbox.Lease, status sandbox.LeaseStatus, by sandbox.EndedBy) {
	w.Helper()
	if l.Status != status || l.EndedBy != by {
		w.Fatalf("lease is %s, ended by %q (%s, last error %q), want %s, ended by %q",
			l.Status, l.EndedBy, l.EndReason, l.LastError, status, by)
	}
}

// later lets time pass, and lets all due work be done.
func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
