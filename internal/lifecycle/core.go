package lifecycle

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/host"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Config configures a Core. All fields are required except Host and Observer.
type Config struct {
	Store     *ledger.Store
	Executors []driver.Executor
	// PriceBooks apply to usage that begins from now on, one for each backend.
	PriceBooks map[sandbox.Backend]sandbox.PriceBook
	// Host is what sandboxes may use of this machine; nil allows nothing.
	Host     *host.Host
	IDs      sandbox.IDs
	Log      *slog.Logger
	Observer Observer // nil: none
	// Version is the version of this program, for its sandboxes.
	Version string
}

// Observer receives what one core did, for metrics. Its methods are safe for concurrent use and do not block.
type Observer interface {
	// Stepped: a step on a backend (spawn, assign, sleep, wake, freeze, save, kill) took this long, from its claim until
	// it was recorded. code is "" if it succeeded.
	Stepped(b sandbox.Backend, step string, code sandbox.Code, took time.Duration)
	// Destroyed: a sandbox was gone this long after its lease had ended.
	Destroyed(b sandbox.Backend, endedBy sandbox.EndedBy, after time.Duration)
}

type nopObserver struct{}

func (nopObserver) Stepped(sandbox.Backend, string, sandbox.Code, time.Duration) {}
func (nopObserver) Destroyed(sandbox.Backend, sandbox.EndedBy, time.Duration)    {}

// Core claims, decides, acts and settles. It is safe for concurrent use, by any number of cores on one ledger.
type Core struct {
	// Sampler reads what sandboxes use.
	Sampler *Sampler

	store    *ledger.Store
	backends map[sandbox.Backend]*Backend
	books    map[sandbox.Backend]sandbox.PriceBook
	now      func() time.Time
	ids      sandbox.IDs
	host     *host.Host
	version  string
	log      *slog.Logger
	observer Observer
	hooks    Hooks

	// life ends with Close. Work without a request runs on it.
	life context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	ending sync.Map // the runs that EndRunSoon ends

	mu     sync.Mutex // guards the fields below
	closed bool
	claims map[string]string // the sandbox of each claim
	// holds has, for each of this process's uses, how long it lasts beyond the death of the process. Commands last longer.
	holds map[string]micro.Span
}

// New makes a core without hooks. It does nothing on its own before Start. It owns neither the store nor the executors.
func New(c Config) (*Core, error) {
	if c.Observer == nil {
		c.Observer = nopObserver{}
	}
	core := &Core{
		store: c.Store, observer: c.Observer, now: c.Store.Now, ids: c.IDs, host: c.Host, log: c.Log, version: c.Version,
		backends: make(map[sandbox.Backend]*Backend), books: c.PriceBooks,
		claims: make(map[string]string), holds: make(map[string]micro.Span),
	}
	core.Sampler = newSampler(core)
	for _, x := range c.Executors {
		if _, taken := core.backends[x.Backend()]; taken {
			return nil, sandbox.Errorf(sandbox.Invalid, "lifecycle: two executors of the backend %s: a reconciler drives one "+
				"instance of a kind; run a replica for the other one", x.Backend())
		}
		core.backends[x.Backend()] = &Backend{Executor: x, core: core, witness: witnessOf(core, x)}
	}
	core.life, core.stop = context.WithCancel(context.Background())
	return core, nil
}

// Start adds the hooks, and begins to extend claims.
func (c *Core) Start(h Hooks) {
	c.hooks = h
	c.wg.Add(1)
	go c.heartbeat()
	c.Background(c.freeClaims)
}

// freeClaims ends the claims of processes that died before this one began. It looks until such claims have run out,
// because a database may notice a death late.
func (c *Core) freeClaims() {
	tick := time.NewTicker(HeartbeatEvery)
	defer tick.Stop()
	for range ClaimTTL / HeartbeatEvery {
		n, err := c.store.FreeClaims(c.life)
		switch {
		case c.life.Err() != nil:
		case err != nil:
			c.log.Warn("lifecycle: freeing the claims of processes that have died; they run out by themselves", "error", err)
		case n > 0:
			c.log.Info("lifecycle: freed the claims of processes that have died", "claims", n)
		}
		select {
		case <-c.life.Done():
			return
		case <-tick.C:
		}
	}
}

// Close waits until the work under way is done. Sandboxes keep running.
func (c *Core) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.wg.Wait()
	return nil
}

// Background runs fn on the core's life, unless it has ended.
func (c *Core) Background(fn func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wg.Go(fn)
	return true
}

// Timeouts of backend calls, and the pace of claims. A claim outlives three missed heartbeats. Another process takes
// over work within ClaimTTL of a process's death.
const (
	instanceTimeout = 10 * time.Second
	SpawnTimeout    = 90 * time.Second
	KillTimeout     = 60 * time.Second
	restTimeout     = 30 * time.Second       // a stop grants 10 s
	copyTimeout     = 3 * time.Minute        // of a sleep or a wake if the backend copies the disk
	watchAfter      = 200 * time.Millisecond // most sleeps and wakes are over by then
	answerTimeout   = 5 * time.Second        // of a sandbox that is awake, or of a backend
	inspectTimeout  = 10 * time.Second

	ClaimTTL       = 8 * time.Second
	HeartbeatEvery = 2 * time.Second
)

// heartbeat extends this process's claims and holds while it lives. Without it, a full disk would end the leases that
// are in use.
func (c *Core) heartbeat() {
	defer c.wg.Done()
	ctx := Essential(c.life)
	tick := time.NewTicker(HeartbeatEvery)
	defer tick.Stop()
	for {
		select {
		case <-c.life.Done():
			return
		case <-tick.C:
		}
		c.mu.Lock()
		claims, holds := maps.Clone(c.claims), holdersOf(c.holds)
		c.mu.Unlock()
		extensions := c.hooks.Extensions()
		if len(claims)+len(holds)+len(extensions) == 0 {
			continue
		}
		err := c.store.Write(ctx, func(tx *ledger.Tx) error {
			until := tx.Now.Add(micro.SpanOf(ClaimTTL))
			if err := tx.ExtendClaims(claims, until); err != nil {
				return err
			}
			for ttl, holders := range holds {
				if err := tx.Holds().Extend(holders, tx.Now.Add(ttl)); err != nil {
					return err
				}
			}
			for _, extend := range extensions {
				if err := extend(tx, until); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil && c.life.Err() == nil {
			c.log.Error("lifecycle: extending claims", "error", err)
		}
	}
}

// holdersOf groups holders by how long their uses last beyond the death of their process.
func holdersOf(holds map[string]micro.Span) map[micro.Span][]string {
	by := make(map[micro.Span][]string)
	for holder, ttl := range holds {
		by[ttl] = append(by[ttl], holder)
	}
	return by
}

// Holders returns the uses of this process that last for ttl beyond its death.
func (c *Core) Holders(ttl time.Duration) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return holdersOf(c.holds)[micro.SpanOf(ttl)]
}

// Life ends when the service closes.
func (c *Core) Life() context.Context { return c.life }
