package leasing_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/loop"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestRequestsAboutAnEnvironmentAreCarriedOutOneAfterTheOther makes clients of two replicas create, change, use and
// delete one environment concurrently, and give up. The replicas and the backend fail. After every step, no live lease
// has an environment that is being deleted or is not provisioned. In the end, the backend matches the ledger.
func TestRequestsAboutAnEnvironmentAreCarriedOutOneAfterTheOther(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		path := filepath.Join(memoryDir(t), "ledger.db")
		rapid.SyncTest(r, func(r *rapid.T) { newSite(r, path).run() })
	})
}

// site has one ledger with two replicas, the first of which has a loop, and a backend.
type site struct {
	*rapid.T
	path     string
	store    *ledger.Store
	backend  *fake.Executor
	engines  [2]*leasing.Service
	stopLoop func()
	clients  sync.WaitGroup

	mu      sync.Mutex // guards what follows
	making  string     // mode of the backend's Provision: "", "slow", "fails" or "hangs"
	taking  string     // mode of its Deprovision
	deletes int        // number of requested deletions
}

func newSite(r *rapid.T, path string) *site {
	s := &site{T: r, path: path, backend: fake.New("engine-1", nil)}
	var err error
	if s.store, err = ledger.Open(context.Background(), "sqlite://"+path,
		ledger.Options{Now: time.Now, Poll: time.Hour}); err != nil {
		r.Fatal(err)
	}
	for i := range s.engines {
		s.start(i)
	}
	s.backend.Fault(fake.OpProvision, func(ctx context.Context) error { return s.behave(ctx, &s.making) })
	s.backend.Fault(fake.OpDeprovision, func(ctx context.Context) error { return s.behave(ctx, &s.taking) })
	return s
}

// behave applies a mode before an operation of the backend.
func (s *site) behave(ctx context.Context, how *string) error {
	s.mu.Lock()
	now := *how
	s.mu.Unlock()
	switch now {
	case "slow":
		time.Sleep(5 * time.Second)
	case "fails":
		return sandbox.Errorf(sandbox.Failed, "the disk is full")
	case "hangs":
		<-ctx.Done()
		return sandbox.Errorf(sandbox.Unavailable, "no answer: %w", ctx.Err())
	}
	return nil
}

func (s *site) start(i int) {
	e, err := leasing.New(leasing.Config{
		Store:     s.store,
		Executors: []driver.Executor{s.backend},
		Keys:      seal.InFile(s.path+".key", true),
	})
	if err != nil {
		s.Fatal(err)
	}
	s.engines[i] = e
	if i > 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = loop.New(e, loop.Config{Poll: time.Minute}).Run(ctx)
	}()
	s.stopLoop = func() { cancel(); <-done }
}

// die ends a replica and replaces it.
func (s *site) die(i int) {
	if i == 0 {
		s.stopLoop()
	}
	if err := s.engines[i].Close(); err != nil {
		s.Error(err)
	}
}

// client makes a request to one of the replicas, with a limit on its patience.
func (s *site) client(ask func(ctx context.Context, e *leasing.Service)) {
	e := s.engines[rapid.IntRange(0, 1).Draw(s.T, "replica")]
	patience := time.Duration(rapid.SampledFrom([]int{1, 7, 200}).Draw(s.T, "patience")) * time.Second
	s.clients.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		ask(ctx, e)
	})
}

func (s *site) run() {
	behaviours := []string{"", "", "slow", "fails", "hangs"}
	s.Repeat(map[string]func(*rapid.T){
		"put":     func(*rapid.T) { s.put() },
		"again":   func(*rapid.T) { s.put() },
		"acquire": func(*rapid.T) { s.acquire() },
		"release": func(*rapid.T) {
			s.client(func(ctx context.Context, e *leasing.Service) { _, _ = e.Release(ctx, sandbox.LeaseRef{ID: annLease}) })
		},
		"delete": func(*rapid.T) { s.delete() },
		"making": func(*rapid.T) { s.set(&s.making, rapid.SampledFrom(behaviours).Draw(s.T, "making")) },
		"taking": func(*rapid.T) { s.set(&s.taking, rapid.SampledFrom(behaviours).Draw(s.T, "taking")) },
		"die": func(*rapid.T) {
			i := rapid.IntRange(0, 1).Draw(s.T, "replica")
			s.die(i)
			s.start(i)
		},
		"pass": func(*rapid.T) { time.Sleep(time.Duration(rapid.IntRange(1, 40).Draw(s.T, "seconds")) * time.Second) },
		"":     func(*rapid.T) { s.check() },
	})
	s.set(&s.making, "")
	s.set(&s.taking, "")
	s.clients.Wait()
	time.Sleep(5 * time.Minute)
	s.check()
	s.checkAtRest()
	for i := range s.engines {
		s.die(i)
	}
	if err := s.store.Close(); err != nil {
		s.Error(err)
	}
}

func (s *site) set(how *string, to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*how = to
}

func (s *site) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deletes
}

func (s *site) put() {
	createOnly := rapid.Bool().Draw(s.T, "create only")
	s.client(func(ctx context.Context, e *leasing.Service) {
		before := s.asked()
		env, err := e.PutEnvironment(ctx, creating(func(p *sandbox.PutEnvironment) { p.CreateOnly = createOnly }))
		if err == nil && env.Status != sandbox.EnvironmentOpen && s.asked() == 0 && before == 0 {
			s.Errorf("a client got an environment that is %s, although no client deletes any", env.Status)
		}
	})
}

func (s *site) acquire() {
	noWait := rapid.Bool().Draw(s.T, "at once")
	s.client(func(ctx context.Context, e *leasing.Service) {
		_, _ = e.Acquire(ctx, sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test", NoWait: noWait})
	})
}

func (s *site) delete() {
	force := rapid.Bool().Draw(s.T, "force")
	s.client(func(ctx context.Context, e *leasing.Service) {
		s.mu.Lock()
		s.deletes++
		s.mu.Unlock()
		_ = e.DeleteEnvironment(ctx, sandbox.DeleteEnvironment{ID: game, Force: force})
	})
}

// stored returns the environment's row, nil if there is none.
func (s *site) stored() (row *ledger.Environment) {
	err := s.store.Read(context.Background(), func(tx *ledger.Tx) (err error) {
		row, err = tx.Environment(game)
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return row
}

func (s *site) check() {
	synctest.Wait()
	leases, err := s.engines[1].ListLeases(context.Background(), sandbox.LeaseFilter{})
	if err != nil {
		s.Fatal(err)
	}
	for _, l := range leases {
		if l.Status != sandbox.LeaseActive && l.Status != sandbox.LeasePending {
			continue
		}
		if row := s.stored(); row.Status != sandbox.EnvironmentOpen || s.backend.Environments() != 1 {
			s.Fatalf("lease %s is %s, its environment is %s, and %d are provisioned",
				l.ID, l.Status, row.Status, s.backend.Environments())
		}
	}
}

// checkAtRest checks the final state once nothing fails and every client is gone.
func (s *site) checkAtRest() {
	row := s.stored()
	if row == nil {
		return
	}
	provisioned, want := s.backend.Environments(), 0
	if row.Status == sandbox.EnvironmentOpen && row.UnmadeSince == 0 {
		want = 1
	} else if row.Status != sandbox.EnvironmentDestroyed {
		s.Fatalf("the environment is %s, unmade since %d", row.Status, row.UnmadeSince)
	}
	if provisioned != want || row.Claim.Token != "" {
		s.Fatalf("the environment is %s with the claim %q, and %d are provisioned", row.Status, row.Claim.Token, provisioned)
	}
}
