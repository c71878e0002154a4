// Package loop works on sandboxes when they are due.
//
// It is level-triggered: a commit, a timer or a backend's event only wakes the loop. Each time,
// internal/lifecycle decides from the row what to do. Any number of loops may run on one ledger.
//
//	commit on the ledger ─┐
//	smallest due_at ──────┼─> Due ─> workers ─> Service.Work (claim, act once, settle)
//	slow poll ────────────┘
//	commit, slow poll ──────> Service.ReconcilePools (creates and ends sandboxes of warm pools)
//	backend's events ───────> Service.Look    (drift of one sandbox)
//	ticker, reconnect ──────> Service.Resync  (drift of all, orphans, usage)
//	ticker ─────────────────> Service.RollUp  (ended usage, by day)
//	ticker ─────────────────> Service.CheckBudgets (thresholds, leases whose budget is spent)
//	ticker ─────────────────> Service.PurgeUsage (old samples of usage)
//	start, ticker ──────────> Service.Purge   (leases destroyed long ago)
//	ticker ─────────────────> Service.CollectEgress (connection attempts of sandboxes)
//	ticker ─────────────────> Service.BoundOutput (drops the oldest output beyond the limits)
//	ticker ─────────────────> Service.CollectSnapshots (objects of replaced snapshots)
//	ticker ─────────────────> Service.FinishEnvironments (remains of failed creations and removals)
//	start, ticker ──────────> Service.ReconcileUsage (usage as measured by the backend)
//	commit, timer, slow poll > Service.CheckCompanions (health of companions that were ready)
//	commit, timer, slow poll > Service.TakeOverExecs (commands whose process died)
//	commit, timer, slow poll > Service.ReconcileProcesses (processes to start, or without a follower)
//
// Passes that wait for a backend (Work, Look, Resync, CollectEgress, FinishEnvironments, ReconcileUsage) run in
// goroutines of that backend, with its own workers. CheckCompanions only starts checks, and limits their number. The
// other passes only read and write the ledger.
package loop

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/retention"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Config tunes a loop; zero values take the defaults.
type Config struct {
	// Workers limits the concurrent steps on each backend. Default 128: a backend limits and prioritizes its own calls.
	Workers int
	// Poll is the interval of the fallback poll, in addition to commits and timers. Default 5s.
	Poll time.Duration
	// ResyncEvery is the interval of drift detection, of the usage heartbeat and of accounting. Default 30s.
	ResyncEvery time.Duration
	// BudgetEvery is the interval of checking budgets. Default 10s: leases end within 30 s of a budget being spent.
	BudgetEvery time.Duration
	// EgressEvery is the interval of reading the logs of gateways. Default 5s.
	EgressEvery time.Duration
	// HealthEvery is the minimum pause between two health checks of a companion that was ready. Default 10s.
	HealthEvery time.Duration
	// CleanupTTL is how long destroyed leases are kept; zero keeps them forever.
	CleanupTTL time.Duration
	// PurgeEvery is the interval of purging leases that are older. Default 10m.
	PurgeEvery time.Duration
	// MeterEvery is the interval of comparing usage with the meters of backends. Default 1h.
	MeterEvery time.Duration
	// Reconnect is the wait before reconnecting to a lost backend. Default 1s.
	Reconnect time.Duration
	// Observer receives each pass; nil means none.
	Observer Observer
	Logger   *slog.Logger // nil discards
}

// Observer receives passes for metrics. Its methods are safe for concurrent use and do not block.
type Observer interface {
	// PassBegan announces once that passes with this name follow, over one backend, or over the ledger ("").
	PassBegan(pass string, b sandbox.Backend)
	// PassEnded reports the end of a pass, with or without an error.
	PassEnded(pass string, b sandbox.Backend, err error)
}

type nopObserver struct{}

func (nopObserver) PassBegan(string, sandbox.Backend)        {}
func (nopObserver) PassEnded(string, sandbox.Backend, error) {}

// The periodic passes of a loop.
const (
	PassDue       = "due"       // pass due sandboxes to workers
	PassPools     = "pools"     // fill and shrink warm pools
	PassExecs     = "execs"     // take over commands
	PassProcesses = "processes" // start and follow processes
	PassResync    = "resync"    // compare a backend with the ledger
	PassEgress    = "egress"    // record connection attempts of a backend's sandboxes
	PassHealth    = "health"    // check companions of a backend's sandboxes
	PassRollUp    = "rollup"    // count ended usage by day
	PassBudgets   = "budgets"   // check budgets
	PassUsage     = "usage"     // purge old usage samples
	PassOutput    = "output"    // drop the oldest output beyond the limits
	PassSnapshots = "snapshots" // delete objects of replaced snapshots
	PassFinish    = "finish"    // remove remains of failed creations and removals of environments
	PassMeter     = "meter"     // compare usage with the meters of backends
	PassPurge     = "purge"     // purge leases destroyed long ago
)

// Loop is one reconciliation loop.
type Loop struct {
	leases *leasing.Service
	c      Config
	wg     sync.WaitGroup
}

// New returns a loop.
func New(e *leasing.Service, c Config) *Loop {
	if c.Workers == 0 {
		c.Workers = 128
	}
	if c.Poll == 0 {
		c.Poll = 5 * time.Second
	}
	if c.ResyncEvery == 0 {
		c.ResyncEvery = 30 * time.Second
	}
	if c.BudgetEvery == 0 {
		c.BudgetEvery = 10 * time.Second
	}
	if c.EgressEvery == 0 {
		c.EgressEvery = 5 * time.Second
	}
	if c.HealthEvery == 0 {
		c.HealthEvery = 10 * time.Second
	}
	if c.PurgeEvery == 0 {
		c.PurgeEvery = 10 * time.Minute
	}
	if c.MeterEvery == 0 {
		c.MeterEvery = time.Hour
	}
	if c.Reconnect == 0 {
		c.Reconnect = time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if c.Observer == nil {
		c.Observer = nopObserver{}
	}
	return &Loop{leases: e, c: c}
}

// Run works until ctx ends, then waits for the running steps. Passes that call backends have a goroutine per backend,
// so that a hanging backend does not delay others.
func (l *Loop) Run(ctx context.Context) error {
	for _, b := range l.leases.Backends() {
		for _, pass := range []string{PassDue, PassResync, PassEgress, PassHealth, PassFinish, PassMeter} {
			l.c.Observer.PassBegan(pass, b)
		}
		d := newDispatcher(l, b)
		w := &watcher{
			loop:    l,
			backend: b,
			pending: make(map[string]struct{}),
			signal:  make(chan struct{}, 1),
			all:     make(chan struct{}, 1),
		}
		l.wg.Go(func() { d.run(ctx) })
		l.wg.Go(func() { w.connect(ctx) })
		l.wg.Go(func() { w.resync(ctx) })
		l.wg.Go(func() { w.follow(ctx) })
		l.wg.Go(func() { l.collectEgress(ctx, b) })
		l.wg.Go(func() {
			l.poll(ctx, polled{PassHealth, b, "checking companions", l.leases.Scheduled, l.c.HealthEvery / healthTicks,
				func(ctx context.Context) (time.Time, error) { return l.leases.CheckCompanions(ctx, b, l.c.HealthEvery) }})
		})
		l.wg.Go(func() { l.finishEnvironments(ctx, b) })
		l.wg.Go(func() { l.meter(ctx, b) })
	}
	for _, pass := range []string{
		PassPools, PassExecs, PassProcesses, PassRollUp, PassBudgets, PassUsage, PassOutput, PassSnapshots,
	} {
		l.c.Observer.PassBegan(pass, "")
	}
	l.wg.Go(func() { l.tend(ctx) })
	l.wg.Go(func() { l.account(ctx) })
	l.wg.Go(func() { l.checkBudgets(ctx) })
	for _, p := range []polled{
		{PassExecs, "", "taking over commands", l.leases.Changed, pollPause, l.leases.TakeOverExecs},
		{PassProcesses, "", "starting and following processes", l.leases.Changed, pollPause, l.leases.ReconcileProcesses},
	} {
		l.wg.Go(func() { l.poll(ctx, p) })
	}
	if l.c.CleanupTTL > 0 {
		l.c.Observer.PassBegan(PassPurge, "")
		l.wg.Go(func() { l.purge(ctx) })
	}
	l.wg.Wait()
	return ctx.Err()
}

// passed reports a pass to the observer. It returns whether the pass failed, unless the loop is ending.
func (l *Loop) passed(ctx context.Context, pass string, b sandbox.Backend, err error) (failed bool) {
	if err != nil && ctx.Err() != nil {
		return false
	}
	l.c.Observer.PassEnded(pass, b, err)
	return err != nil
}

// account counts ended usage, and deletes obsolete rows and objects, at the interval of resyncs.
func (l *Loop) account(ctx context.Context) {
	tick := time.NewTicker(l.c.ResyncEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := l.leases.RollUp(ctx); l.passed(ctx, PassRollUp, "", err) {
			l.c.Logger.Warn("loop: counting usage by day", "error", err)
		}
		if err := l.leases.PurgeUsage(ctx); l.passed(ctx, PassUsage, "", err) {
			l.c.Logger.Warn("loop: purging old usage samples; will retry", "error", err)
		}
		if err := l.leases.BoundOutput(ctx); l.passed(ctx, PassOutput, "", err) {
			l.c.Logger.Warn("loop: dropping the oldest output; will retry", "error", err)
		}
		if err := l.leases.CollectSnapshots(ctx); l.passed(ctx, PassSnapshots, "", err) {
			l.c.Logger.Warn("loop: deleting objects of replaced snapshots", "error", err)
		}
	}
}

// checkBudgets raises the thresholds of budgets, and ends the leases of spent ones.
func (l *Loop) checkBudgets(ctx context.Context) {
	tick := time.NewTicker(l.c.BudgetEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := l.leases.CheckBudgets(ctx); l.passed(ctx, PassBudgets, "", err) {
			l.c.Logger.Warn("loop: checking budgets", "error", err)
		}
	}
}

// finishEnvironments removes remains of failed creations and removals of environments on a backend, at the interval of
// resyncs.
func (l *Loop) finishEnvironments(ctx context.Context, b sandbox.Backend) {
	tick := time.NewTicker(l.c.ResyncEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := l.leases.FinishEnvironments(ctx, b); l.passed(ctx, PassFinish, b, err) {
			l.c.Logger.Warn("loop: removing remains of environments; will retry", "backend", b, "error", err)
		}
	}
}

// meter compares usage with the meter of a backend, immediately and then at its interval.
func (l *Loop) meter(ctx context.Context, b sandbox.Backend) {
	tick := time.NewTicker(l.c.MeterEvery)
	defer tick.Stop()
	for {
		if err := l.leases.ReconcileUsage(ctx, b); l.passed(ctx, PassMeter, b, err) {
			l.c.Logger.Warn("loop: comparing usage with the meter of a backend; will retry",
				"backend", b, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// collectEgress records the connection attempts of sandboxes. It logs the first failure and the recovery.
func (l *Loop) collectEgress(ctx context.Context, b sandbox.Backend) {
	tick := time.NewTicker(l.c.EgressEvery)
	defer tick.Stop()
	failing := false
	for {
		err := l.leases.CollectEgress(ctx, b)
		l.passed(ctx, PassEgress, b, err)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			l.c.Logger.Warn("loop: recording egress of sandboxes; will retry", "backend", b, "error", err)
		case err == nil && failing:
			l.c.Logger.Info("loop: recording egress of sandboxes works again", "backend", b)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// purge purges leases destroyed long ago, immediately and then at its interval.
func (l *Loop) purge(ctx context.Context) {
	tick := time.NewTicker(l.c.PurgeEvery)
	defer tick.Stop()
	for {
		done, err := l.leases.Purge(ctx, l.c.CleanupTTL)
		if done != (retention.Purged{}) {
			l.c.Logger.Info("loop: purged leases destroyed long ago", "sandboxes", done.Sandboxes,
				"environments", done.Environments, "events", done.Events, "deliveries", done.Deliveries, "findings", done.Findings)
		}
		if l.passed(ctx, PassPurge, "", err) {
			l.c.Logger.Warn("loop: purging leases destroyed long ago; will retry", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// fillAfter is the delay between a commit and filling warm pools. It leaves the engine to the acquire that has just
// taken a sandbox from a pool, and limits how often the loop checks pools.
const fillAfter = 200 * time.Millisecond

// tend keeps the warm pools filled, after commits and at the interval of the poll.
func (l *Loop) tend(ctx context.Context) {
	for ctx.Err() == nil {
		changed := l.leases.Changed()
		if err := l.leases.ReconcilePools(ctx); l.passed(ctx, PassPools, "", err) {
			l.c.Logger.Error("loop: filling warm pools", "error", err)
		}
		sleep(ctx, l.c.Poll, changed)
		sleep(ctx, fillAfter, nil)
	}
}

const (
	// pollPause limits how often the loop looks for commands and processes without a follower.
	pollPause = 200 * time.Millisecond
	// healthTicks is how many times per HealthEvery the loop looks for due checks of companions at most. So a check is
	// late by at most a fifth of HealthEvery.
	healthTicks = 5
)

// polled is a pass that is made at commits, and at the time that its do returns.
type polled struct {
	pass    string
	backend sandbox.Backend // "": the pass is over the ledger
	what    string
	// commits returns a channel that is closed at the next commit that the pass is made for.
	commits func() <-chan struct{}
	pause   time.Duration // least pause between two passes; no pass is late by more
	do      func(context.Context) (next time.Time, err error)
}

// poll makes a pass until ctx ends.
func (l *Loop) poll(ctx context.Context, p polled) {
	for ctx.Err() == nil {
		commit := p.commits()
		next, err := p.do(ctx)
		if l.passed(ctx, p.pass, p.backend, err) {
			l.c.Logger.Error("loop: "+p.what+"; will retry", "backend", p.backend, "error", err)
		}
		pause := l.c.Poll
		if !next.IsZero() {
			pause = min(pause, next.Sub(l.leases.Now()))
		}
		sleep(ctx, pause, commit)
		sleep(ctx, p.pause, nil)
	}
}

// sleep returns after a duration, at a commit, or when ctx ends.
func sleep(ctx context.Context, d time.Duration, changed <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-changed:
	case <-timer.C:
	}
}
