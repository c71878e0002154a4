package leasing_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/loop"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// process is one reconciler: an engine with its own store, connected to the backend by a wire. It can die: then nothing
// of it reaches the ledger or the backend any more. It can freeze: then the calls that it had begun arrive late.
type process struct {
	store  *ledger.Store
	engine *leasing.Service
	// life ends when the process dies or freezes. Requests to it end with it.
	life context.Context
	end  context.CancelFunc
	// parted is closed when the calls that its death or freeze interrupted may return.
	parted chan struct{}
	part   sync.Once
	wg     sync.WaitGroup
	closed chan struct{}

	mu     sync.Mutex // guards what follows
	frozen bool
}

// host runs processes.
type host struct {
	url     string
	options ledger.Options
	backend *fake.Executor
	faults  *faults
	ids     sandbox.IDs
	book    sandbox.PriceBook
	loop    *loop.Config
}

// start starts a process. follow, if not nil, gets the events after an id while the process lives.
func (h *host) start(t rapid.TB, after int64, follow func(sandbox.Event)) *process {
	t.Helper()
	store, err := ledger.Open(context.Background(), h.url, h.options)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{store: store, parted: make(chan struct{}), closed: make(chan struct{})}
	p.life, p.end = context.WithCancel(context.Background())
	p.engine, err = leasing.New(leasing.Config{
		Store:      store,
		Executors:  []driver.Executor{&wire{Executor: h.backend, from: p, faults: h.faults}},
		PriceBooks: map[sandbox.Backend]sandbox.PriceBook{sandbox.Docker: h.book},
		IDs:        h.ids,
		Version:    "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	p.wg.Go(func() { _ = loop.New(p.engine, *h.loop).Run(p.life) })
	if follow != nil {
		p.wg.Go(func() {
			_ = p.engine.FollowEvents(p.life, sandbox.EventFilter{AfterID: after}, func(e sandbox.Event) error {
				follow(e)
				return nil
			})
		})
	}
	return p
}

// die disconnects the process, as SIGKILL would. The commit under way is its last.
func (p *process) die() {
	_ = p.store.Close()
	p.end()
}

// freeze stops the process, as SIGSTOP would. Its claims are no longer extended.
func (p *process) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen { // two of its calls may meet the fault
		return
	}
	p.frozen = true
	p.end()
	go func() { _ = p.engine.Close(); close(p.closed) }()
}

func (p *process) isFrozen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frozen
}

func (p *process) alive() bool { return p.life.Err() == nil }

// ask makes a request to the process, which may die or freeze meanwhile.
func (p *process) ask(f func() error) error {
	answer := make(chan error, 1)
	p.wg.Go(func() { answer <- f() })
	select {
	case err := <-answer:
		return err
	case <-p.life.Done():
		return errCutOff
	}
}

// awaitGone waits until nothing is left of a process that has died or must stop. The calls that a frozen one had begun
// arrive now.
func (p *process) awaitGone() {
	p.end()
	p.part.Do(func() { close(p.parted) })
	if !p.isFrozen() {
		_ = p.engine.Close()
	} else {
		<-p.closed
	}
	p.wg.Wait()
	_ = p.store.Close()
}

// fault is the effect on one call of a backend.
type fault string

const (
	refused  fault = "refused"      // nothing happened
	lost     fault = "answer lost"  // it happened
	hung     fault = "hung"         // it did not happen, and the call does not return before its deadline
	late     fault = "late"         // the same, but it happens long after that
	slow     fault = "slow"         // it happened, and the answer arrives after later changes
	broken   fault = "broken"       // it failed permanently
	dies     fault = "dies before"  // the process dies
	diesDone fault = "dies after"   // the process dies once it happened
	freezes  fault = "freezes"      // the process freezes, and it happens when it thaws
	frozen   fault = "freezes done" // the process freezes once it happened
)

// lateBy is the time from the end of a late call to its effect.
const lateBy = 2 * time.Minute

// slowBy is the age of a slow answer, which still meets every deadline.
const slowBy = 4 * time.Second

// faults are the effects on the next calls of a backend.
type faults struct {
	// orphan gets the id of a sandbox that the backend may create after its caller has stopped waiting.
	orphan func(id string)

	mu   sync.Mutex // guards next
	next map[fake.Op][]fault
}

func (f *faults) arm(op fake.Op, kind fault, calls int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range calls {
		f.next[op] = append(f.next[op], kind)
	}
}

func (f *faults) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = make(map[fake.Op][]fault)
}

func (f *faults) take(op fake.Op) fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := f.next[op]
	if len(left) == 0 {
		return ""
	}
	f.next[op] = left[1:]
	return left[0]
}

// errCutOff is an error that no caller receives.
var errCutOff = sandbox.Errorf(sandbox.UnknownOutcome, "the process was cut off")

// wire connects one process to the backend.
type wire struct {
	*fake.Executor
	from   *process
	faults *faults
}

// call makes a call of the backend, or applies the fault that is set for it.
func (w *wire) call(ctx context.Context, op fake.Op, id string, effect func(ctx context.Context) error) error {
	p := w.from
	if !p.alive() {
		<-p.parted
		return errCutOff
	}
	kind := w.faults.take(op)
	if (kind == late || kind == freezes) && op == fake.OpSpawn {
		w.faults.orphan(id)
	}
	switch kind {
	case refused:
		return away
	case lost:
		_ = effect(ctx)
		return sandbox.Errorf(sandbox.UnknownOutcome, "the connection broke")
	case broken:
		return sandbox.Errorf(sandbox.Failed, "exec format error")
	case hung:
		return w.hang(ctx)
	case late:
		err := w.hang(ctx)
		p.wg.Go(func() {
			time.Sleep(lateBy)
			_ = effect(context.WithoutCancel(ctx))
		})
		return err
	case slow:
		err := effect(ctx)
		select {
		case <-time.After(slowBy):
			return err
		case <-ctx.Done():
		case <-p.parted:
		}
		return errCutOff
	case diesDone:
		_ = effect(ctx)
		fallthrough
	case dies:
		p.die()
		<-p.parted
		return errCutOff
	case frozen:
		err := effect(ctx)
		p.freeze()
		<-p.parted
		return err
	case freezes:
		p.freeze()
		<-p.parted
		return effect(context.WithoutCancel(ctx))
	}
	return effect(ctx)
}

// ask is call for a call with an answer. The answer is lost if it comes too late.
func ask[T any](ctx context.Context, w *wire, op fake.Op, id string,
	question func(ctx context.Context) (T, error)) (T, error) {
	answers := make(chan T, 1) // one answer: each call has its effect at most once
	err := w.call(ctx, op, id, func(ctx context.Context) error {
		answer, err := question(ctx)
		answers <- answer
		return err
	})
	select {
	case answer := <-answers:
		return answer, err
	default:
		var none T
		return none, err
	}
}

func (w *wire) hang(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-w.from.parted:
	}
	return sandbox.Errorf(sandbox.UnknownOutcome, "no answer within the deadline")
}

func (w *wire) Spawn(ctx context.Context, spec driver.SandboxSpec) error {
	return w.call(ctx, fake.OpSpawn, spec.SandboxID,
		func(ctx context.Context) error { return w.Executor.Spawn(ctx, spec) })
}

func (w *wire) Sleep(ctx context.Context, h driver.Handle, mode sandbox.SleepMode) error {
	return w.call(ctx, fake.OpSleep, h.SandboxID,
		func(ctx context.Context) error { return w.Executor.Sleep(ctx, h, mode) })
}

func (w *wire) Assign(ctx context.Context, spec driver.SandboxSpec) error {
	return w.call(ctx, fake.OpAssign, spec.SandboxID,
		func(ctx context.Context) error { return w.Executor.Assign(ctx, spec) })
}

func (w *wire) Wake(ctx context.Context, h driver.Handle) (started bool, err error) {
	return ask(ctx, w, fake.OpWake, h.SandboxID,
		func(ctx context.Context) (bool, error) { return w.Executor.Wake(ctx, h) })
}

func (w *wire) Kill(ctx context.Context, h driver.Handle) error {
	return w.call(ctx, fake.OpKill, h.SandboxID, func(ctx context.Context) error { return w.Executor.Kill(ctx, h) })
}

func (w *wire) Exec(ctx context.Context, h driver.Handle, r sandbox.ExecRequest) (sandbox.ExecResult, error) {
	return ask(ctx, w, fake.OpExec, h.SandboxID, func(ctx context.Context) (sandbox.ExecResult, error) {
		return w.Executor.Exec(ctx, h, r)
	})
}

func (w *wire) Follow(ctx context.Context, h driver.Handle, r sandbox.Replay) (sandbox.ExecResult, error) {
	return ask(ctx, w, fake.OpFollow, h.SandboxID, func(ctx context.Context) (sandbox.ExecResult, error) {
		return w.Executor.Follow(ctx, h, r)
	})
}

func (w *wire) EndExec(ctx context.Context, h driver.Handle, id, user string) error {
	return w.call(ctx, fake.OpEndExec, h.SandboxID,
		func(ctx context.Context) error { return w.Executor.EndExec(ctx, h, id, user) })
}

func (w *wire) Inspect(ctx context.Context, h driver.Handle) (driver.Observation, error) {
	return ask(ctx, w, fake.OpInspect, h.SandboxID, func(ctx context.Context) (driver.Observation, error) {
		return w.Executor.Inspect(ctx, h)
	})
}

func (w *wire) List(ctx context.Context, ledgerID string) ([]driver.Observation, error) {
	return ask(ctx, w, fake.OpList, "", func(ctx context.Context) ([]driver.Observation, error) {
		return w.Executor.List(ctx, ledgerID)
	})
}

func (w *wire) ListEnvironment(ctx context.Context, ref driver.EnvironmentRef) ([]driver.Observation, error) {
	return ask(ctx, w, fake.OpList, "", func(ctx context.Context) ([]driver.Observation, error) {
		return w.Executor.ListEnvironment(ctx, ref)
	})
}

func (w *wire) RemoveDependent(ctx context.Context, l driver.Dependent) error {
	return w.call(ctx, fake.OpRemove, l.SandboxID,
		func(ctx context.Context) error { return w.Executor.RemoveDependent(ctx, l) })
}

// bookOfTests has a price for everything, so that uncounted usage shows.
func bookOfTests() sandbox.PriceBook {
	book := pricing.Cloudflare()
	book.AsleepMemoryGiBSecond = 3
	return book
}

func TestAKillWhoseCallerLeavesEndsTheProcess(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		never := sandbox.Duration(0)
		w.environment(func(p *sandbox.PutEnvironment) { p.SleepAfter = &never })
		w.acquire(ann)
		if _, err := w.engine.StartProcess(w.Context(), sandbox.LeaseRef{ID: annLease},
			sandbox.ProcessSpec{Name: "p", Command: []string{"crash", "10m", "1", "hello"}, Restart: sandbox.RestartAlways}); err != nil {
			t.Fatal(err)
		}
		later(time.Second)
		w.backend.Fault(fake.OpEndExec, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		ref := sandbox.ProcessRef{LeaseRef: sandbox.LeaseRef{ID: annLease}, Name: "p"}
		_, err := w.engine.KillProcess(ctx, ref)
		w.backend.Fault(fake.OpEndExec, nil)
		later(5 * time.Minute)
		p, _ := w.engine.GetProcess(w.Context(), ref)
		if err == nil || p.State != sandbox.ProcessKilled {
			t.Errorf("the caller left with %v, and 5 minutes later the process is %s", err, p.State)
		}
		_, err = w.engine.StartProcess(w.Context(), ref.LeaseRef,
			sandbox.ProcessSpec{Name: "p", Command: []string{"crash", "10m", "1", "hello"}, Restart: sandbox.RestartAlways})
		if err != nil {
			t.Fatal(err)
		}
		later(10 * time.Minute)
		if p, _ = w.engine.GetProcess(w.Context(), ref); !p.State.Live() {
			t.Errorf("started again, it is %s after it has ended by itself", p.State)
		}
	})
}
