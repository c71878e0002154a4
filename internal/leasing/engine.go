package leasing

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/billing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/egresslog"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/host"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/retention"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Config is what an engine is made of. Store and one executor are required.
type Config struct {
	Store     *ledger.Store
	Executors []driver.Executor
	// PriceBooks are in force for usage that begins from now on. A backend without one is free.
	PriceBooks map[sandbox.Backend]sandbox.PriceBook
	// State keeps what environments keep of /data. Without it an environment cannot keep any.
	State StateStore
	// KeptOutput bounds the output that is kept.
	KeptOutput OutputBounds
	// Host is what sandboxes may have of this machine; nil allows nothing.
	Host *host.Host
	// Keys are what secrets are kept under; nil means that there are none, and secrets are refused.
	Keys *seal.Keys
	// IDs issues sandbox ids and claims; nil means sandbox.RandomIDs.
	IDs     sandbox.IDs
	Logger  *slog.Logger // nil discards
	Version string
	// Observer gets what this engine does; nil: none.
	Observer Observer
}

// Engine is the lease service in process. It is safe for concurrent use, by any number of
// engines on one ledger.
type Engine struct {
	store     *ledger.Store
	backends  map[sandbox.Backend]*backend
	books     map[sandbox.Backend]sandbox.PriceBook
	now       func() time.Time
	ids       sandbox.IDs
	keys      *seal.Keys
	host      *host.Host
	log       *slog.Logger
	version   string
	observer  Observer
	billing   *billing.Service
	retention *retention.Service
	egress    *egresslog.Collector
	receipts  *receipts
	state     StateStore
	bounds    OutputBounds
	// saving holds one element for each save under way.
	saving chan struct{}
	// lastSamples holds one value for each last reading under way.
	lastSamples chan struct{}

	// life ends with Close; what an engine does without a request runs on it.
	life context.Context
	end  context.CancelFunc
	wg   sync.WaitGroup
	// refused is done once a ledger that never knew a sandbox has refused to judge what it found.
	refused sync.Once

	mu     sync.Mutex // guards what follows
	closed bool
	claims map[string]string // the sandbox of each claim
	// holds are how long each of this engine's uses lasts beyond its death; commands last longer.
	holds map[string]ledger.Span
	// processes are this engine's holders of processes.
	processes map[string]struct{}
	// sampling holds the sandboxes whose CPU time is being read after a command.
	sampling map[string]struct{}
}

var _ service.Service = (*Engine)(nil)

// New makes an engine. It owns neither the store nor the executors.
func New(c Config) (*Engine, error) {
	if c.Store == nil || len(c.Executors) == 0 {
		return nil, sandbox.Errorf(sandbox.Invalid, "leasing: a store and at least one executor are required")
	}
	if c.IDs == nil {
		c.IDs = sandbox.RandomIDs
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if c.Observer == nil {
		c.Observer = nobody{}
	}
	e := &Engine{
		store: c.Store, observer: c.Observer, now: c.Store.Now, ids: c.IDs, keys: c.Keys, host: c.Host, log: c.Logger, version: c.Version,
		backends: make(map[sandbox.Backend]*backend), books: make(map[sandbox.Backend]sandbox.PriceBook),
		claims: make(map[string]string), holds: make(map[string]ledger.Span),
		processes: make(map[string]struct{}),
		sampling:  make(map[string]struct{}), lastSamples: make(chan struct{}, lastSamples),
		state: c.State, bounds: c.KeptOutput.withDefaults(), saving: make(chan struct{}, savers),
	}
	for _, x := range c.Executors {
		if _, taken := e.backends[x.Backend()]; taken {
			return nil, sandbox.Errorf(sandbox.Invalid, "leasing: two executors of the backend %s: an engine drives one instance of a kind; run a replica for the other one", x.Backend())
		}
		e.backends[x.Backend()] = &backend{Executor: x, engine: e, witness: e.witnessOf(x)}
		e.books[x.Backend()] = pricing.Free()
	}
	for b, book := range c.PriceBooks {
		e.books[b] = book
	}
	e.egress = egresslog.New(c.Store)
	e.retention = retention.New(c.Store, buryOld, outputObjects)
	e.billing = billing.New(c.Store, e.books, c.Logger)
	e.life, e.end = context.WithCancel(context.Background())
	e.receipts = &receipts{engine: e, arrivals: make(chan *arrival)}
	e.wg.Add(2)
	go e.heartbeat()
	go e.receipts.run()
	e.background(e.freeClaims)
	return e, nil
}

// freeClaims ends the claims of processes that died before this one began.
func (e *Engine) freeClaims() {
	n, err := e.store.FreeClaims(e.life)
	switch {
	case e.life.Err() != nil:
	case err != nil:
		e.log.Warn("leasing: freeing the claims of processes that have died; they run out by themselves", "error", err)
	case n > 0:
		e.log.Info("leasing: freed the claims of processes that have died", "claims", n)
	}
}

// Close waits for what is under way and gives back the engine's claims. Sandboxes go on.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.end()
	e.wg.Wait()
	return nil
}

// background runs fn on the engine's life, unless it has ended.
func (e *Engine) background(fn func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.wg.Go(fn)
	return true
}

// handle names a sandbox on its backend.
func (e *Engine) handle(s *ledger.Sandbox) driver.Handle {
	return driver.Handle{LedgerID: cmp.Or(s.Origin.LedgerID, e.store.ID()), EnvironmentID: s.EnvironmentID, SandboxID: s.ID, Instance: s.Instance}
}

func (e *Engine) environmentRef(id, instance string) driver.EnvironmentRef {
	return driver.EnvironmentRef{LedgerID: e.store.ID(), EnvironmentID: id, Instance: instance}
}

// Ledger implements service.Reports.
func (e *Engine) Ledger(ctx context.Context) (sandbox.LedgerInfo, error) {
	info := sandbox.LedgerInfo{ID: e.store.ID(), Version: e.version, PriceBooks: e.books}
	err := e.store.Read(ctx, func(tx *ledger.Tx) error {
		feed, err := tx.Feed()
		if err != nil {
			return err
		}
		since, err := tx.Accounting().DetailSince()
		info.LastEventID, info.PurgedEventID, info.DetailSince = feed.Last, feed.Purged, since.Time()
		return err
	})
	if err != nil {
		return sandbox.LedgerInfo{}, err
	}
	return info, nil
}

// Deadlines of backend calls, and the pace of claims. A claim outlives three missed heartbeats;
// another process takes over work within claimTTL of a process's death.
const (
	instanceTimeout = 10 * time.Second
	spawnTimeout    = 90 * time.Second
	killTimeout     = 60 * time.Second
	restTimeout     = 30 * time.Second // stop grants 10 s
	answerTimeout   = 5 * time.Second  // of a sandbox that is awake
	inspectTimeout  = 10 * time.Second
	sampleTimeout   = 2 * time.Second

	claimTTL = 8 * time.Second
	// commandTTL is how long a running command keeps its lease awake without a follower: long
	// enough for a process that is started again, or another one, to take it over after claimTTL.
	commandTTL     = 40 * time.Second
	heartbeatEvery = 2 * time.Second

	firstRetry = 500 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// backoff is how long to wait after the nth failure in a row, from 1.
func backoff(n int64) time.Duration {
	d := firstRetry
	for ; n > 1 && d < lastRetry; n-- {
		d *= 2
	}
	return min(d, lastRetry)
}

// heartbeat extends this engine's claims and holds while it lives.
func (e *Engine) heartbeat() {
	defer e.wg.Done()
	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	for {
		select {
		case <-e.life.Done():
			return
		case <-tick.C:
		}
		e.mu.Lock()
		claims, holds, processes := maps.Clone(e.claims), holdersOf(e.holds), slices.Collect(maps.Keys(e.processes))
		e.mu.Unlock()
		if len(claims)+len(holds)+len(processes) == 0 {
			continue
		}
		err := e.store.Write(e.life, func(tx *ledger.Tx) error {
			until := tx.Now.Add(ledger.SpanOf(claimTTL))
			if err := tx.ExtendClaims(claims, until); err != nil {
				return err
			}
			for ttl, holders := range holds {
				if err := tx.ExtendHolds(holders, tx.Now.Add(ttl)); err != nil {
					return err
				}
			}
			if commands := holds[ledger.SpanOf(commandTTL)]; len(commands) > 0 {
				if err := tx.Commands().ExtendExecs(commands, until); err != nil {
					return err
				}
			}
			if len(processes) > 0 {
				return tx.Commands().ExtendProcesses(processes, until)
			}
			return nil
		})
		if err != nil && e.life.Err() == nil {
			e.log.Error("leasing: extending claims", "error", err)
		}
	}
}

// holdersOf returns holders by how long their uses last beyond the death of their process.
func holdersOf(holds map[string]ledger.Span) map[ledger.Span][]string {
	by := make(map[ledger.Span][]string)
	for holder, ttl := range holds {
		by[ttl] = append(by[ttl], holder)
	}
	return by
}
