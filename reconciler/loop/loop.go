// Package loop works on sandboxes when they are due.
//
// It is level-triggered: a commit, a timer or a backend's event only says that it is time to
// look; what to do is decided anew from the row each time (internal/leasing). Any number of
// loops may run on one ledger.
//
//	commit on the ledger ─┐
//	smallest due_at ──────┼─> Due ─> workers ─> Engine.Work (claim, act once, settle)
//	slow poll ────────────┘
//	commit, slow poll ──────> Engine.TendPools (rows of warm pools, made and ended)
//	backend's events ───────> Engine.Look    (drift of one sandbox)
//	ticker, reconnect ──────> Engine.Survey  (drift of all, orphans, usage)
//	ticker ─────────────────> Engine.RollUp  (ended usage, by day), Engine.CheckBudgets (thresholds)
//	ticker ─────────────────> Engine.PurgeUsage (old samples of usage)
//	start, ticker ──────────> Engine.Purge   (what was destroyed long ago)
//	ticker ─────────────────> Engine.CollectEgress (what sandboxes tried to reach)
//	ticker ─────────────────> Engine.BoundOutput (the oldest output, where too much is kept)
//	ticker ─────────────────> Engine.CollectStates (objects of replaced states)
//	ticker ─────────────────> Engine.FinishEnvironments (what broken creations and removals left)
//	start, ticker ──────────> Engine.ReconcileUsage (what a backend has counted itself)
//	commit, timer, slow poll > Engine.TakeOverExecs (commands whose process died)
//	commit, timer, slow poll > Engine.TendProcesses (processes to start, or that nobody follows)
//
// Whatever waits for a backend (Work, Look, Survey, CollectEgress, FinishEnvironments, ReconcileUsage) runs in goroutines of that
// backend, with workers of its own. The other passes only read and write the ledger.
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
	// Workers bounds the steps at work at once on each backend. Default 128: a backend bounds its own calls, and
	// puts first what matters most of all that it is asked for.
	Workers int
	// Poll is the backstop behind commits and timers. Default 5s.
	Poll time.Duration
	// SurveyEvery is the pace of drift detection, of the usage heartbeat and of accounting. Default 30s.
	SurveyEvery time.Duration
	// EgressEvery is the pace at which the logs of gateways become events. Default 5s.
	EgressEvery time.Duration
	// CleanupTTL is how long what was destroyed is kept; zero keeps it.
	CleanupTTL time.Duration
	// RetireEvery is the pace at which what is older is removed. Default 10m.
	RetireEvery time.Duration
	// MeterEvery is the pace at which usage is compared with what backends have counted. Default 1h.
	MeterEvery time.Duration
	// Reconnect is how long to wait before connecting to a lost backend again. Default 1s.
	Reconnect time.Duration
	// Observer gets each pass; nil: none.
	Observer Observer
	Logger   *slog.Logger // nil discards
}

// Observer is told of what a loop does, for metrics. Its methods are safe for concurrent use and return at once.
type Observer interface {
	// PassBegan: a loop will make passes of this name, over one backend, or over the ledger ("").
	PassBegan(pass string, b sandbox.Backend)
	// PassEnded: one has ended, with an error or without.
	PassEnded(pass string, b sandbox.Backend, err error)
}

type nobody struct{}

func (nobody) PassBegan(string, sandbox.Backend)        {}
func (nobody) PassEnded(string, sandbox.Backend, error) {}

// What a loop does again and again.
const (
	PassDue       = "due"       // hand due sandboxes to workers
	PassPools     = "pools"     // tend warm pools
	PassExecs     = "execs"     // take over commands
	PassProcesses = "processes" // tend processes
	PassSurvey    = "survey"    // compare a backend with the ledger
	PassEgress    = "egress"    // record what a backend's sandboxes try to reach
	PassRollUp    = "rollup"    // count ended usage by day
	PassBudgets   = "budgets"   // look at budgets
	PassUsage     = "usage"     // remove old samples of usage
	PassOutput    = "output"    // drop the oldest output where too much is kept
	PassStates    = "states"    // delete objects of replaced states
	PassFinish    = "finish"    // remove what creations and removals of environments have left
	PassMeter     = "meter"     // compare usage with what backends have counted
	PassRetire    = "retire"    // remove what was destroyed long ago
)

// Loop is one reconciliation loop.
type Loop struct {
	engine *leasing.Engine
	c      Config
	wg     sync.WaitGroup
}

// New makes a loop.
func New(e *leasing.Engine, c Config) *Loop {
	if c.Workers == 0 {
		c.Workers = 128
	}
	if c.Poll == 0 {
		c.Poll = 5 * time.Second
	}
	if c.SurveyEvery == 0 {
		c.SurveyEvery = 30 * time.Second
	}
	if c.EgressEvery == 0 {
		c.EgressEvery = 5 * time.Second
	}
	if c.RetireEvery == 0 {
		c.RetireEvery = 10 * time.Minute
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
		c.Observer = nobody{}
	}
	return &Loop{engine: e, c: c}
}

// Run works until ctx ends, then waits for the steps under way. What may call a backend has a goroutine for each
// backend, so that one that hangs delays no other.
func (l *Loop) Run(ctx context.Context) error {
	for _, b := range l.engine.Backends() {
		for _, pass := range []string{PassDue, PassSurvey, PassEgress, PassFinish, PassMeter} {
			l.c.Observer.PassBegan(pass, b)
		}
		d := &dispatcher{loop: l, backend: b, working: make(map[string]struct{}), freed: make(chan struct{}, 1)}
		w := &watcher{loop: l, backend: b, pending: make(map[string]struct{}), signal: make(chan struct{}, 1), all: make(chan struct{}, 1)}
		l.wg.Go(func() { d.run(ctx) })
		l.wg.Go(func() { w.connect(ctx) })
		l.wg.Go(func() { w.survey(ctx) })
		l.wg.Go(func() { w.follow(ctx) })
		l.wg.Go(func() { l.collectEgress(ctx, b) })
		l.wg.Go(func() { l.finishEnvironments(ctx, b) })
		l.wg.Go(func() { l.meter(ctx, b) })
	}
	for _, pass := range []string{PassPools, PassExecs, PassProcesses, PassRollUp, PassBudgets, PassUsage, PassOutput, PassStates} {
		l.c.Observer.PassBegan(pass, "")
	}
	l.wg.Go(func() { l.tend(ctx) })
	l.wg.Go(func() { l.account(ctx) })
	l.wg.Go(func() { l.pursue(ctx, PassExecs, "taking over commands", l.engine.TakeOverExecs) })
	l.wg.Go(func() { l.pursue(ctx, PassProcesses, "tending processes", l.engine.TendProcesses) })
	if l.c.CleanupTTL > 0 {
		l.c.Observer.PassBegan(PassRetire, "")
		l.wg.Go(func() { l.retire(ctx) })
	}
	l.wg.Wait()
	return ctx.Err()
}

// passed tells the observer of a pass, and reports whether it failed: not for the loop's end.
func (l *Loop) passed(ctx context.Context, pass string, b sandbox.Backend, err error) (failed bool) {
	if err != nil && ctx.Err() != nil {
		return false
	}
	l.c.Observer.PassEnded(pass, b, err)
	return err != nil
}

// account counts ended usage, looks at budgets, and deletes what is not needed any more, at the pace
// of surveys.
func (l *Loop) account(ctx context.Context) {
	tick := time.NewTicker(l.c.SurveyEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := l.engine.RollUp(ctx); l.passed(ctx, PassRollUp, "", err) {
			l.c.Logger.Warn("loop: counting usage by day", "error", err)
		}
		if err := l.engine.CheckBudgets(ctx); l.passed(ctx, PassBudgets, "", err) {
			l.c.Logger.Warn("loop: looking at budgets", "error", err)
		}
		if err := l.engine.PurgeUsage(ctx); l.passed(ctx, PassUsage, "", err) {
			l.c.Logger.Warn("loop: removing old samples of usage; it is tried again", "error", err)
		}
		if err := l.engine.BoundOutput(ctx); l.passed(ctx, PassOutput, "", err) {
			l.c.Logger.Warn("loop: dropping the oldest output; it is tried again", "error", err)
		}
		if err := l.engine.CollectStates(ctx); l.passed(ctx, PassStates, "", err) {
			l.c.Logger.Warn("loop: deleting objects of replaced states", "error", err)
		}
	}
}

// finishEnvironments removes what creations and removals of environments have left on a backend, at the pace of surveys.
func (l *Loop) finishEnvironments(ctx context.Context, b sandbox.Backend) {
	tick := time.NewTicker(l.c.SurveyEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := l.engine.FinishEnvironments(ctx, b); l.passed(ctx, PassFinish, b, err) {
			l.c.Logger.Warn("loop: removing what is left of environments; it is tried again", "backend", b, "error", err)
		}
	}
}

// meter compares usage with what a backend has counted, at once and then at its pace.
func (l *Loop) meter(ctx context.Context, b sandbox.Backend) {
	tick := time.NewTicker(l.c.MeterEvery)
	defer tick.Stop()
	for {
		if err := l.engine.ReconcileUsage(ctx, b); l.passed(ctx, PassMeter, b, err) {
			l.c.Logger.Warn("loop: comparing usage with what a backend has counted; it is tried again", "backend", b, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// collectEgress records what sandboxes tried to reach. It says once when it cannot, and once when it
// can again.
func (l *Loop) collectEgress(ctx context.Context, b sandbox.Backend) {
	tick := time.NewTicker(l.c.EgressEvery)
	defer tick.Stop()
	failing := false
	for {
		err := l.engine.CollectEgress(ctx, b)
		l.passed(ctx, PassEgress, b, err)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			l.c.Logger.Warn("loop: recording what sandboxes try to reach; it is tried again", "backend", b, "error", err)
		case err == nil && failing:
			l.c.Logger.Info("loop: what sandboxes try to reach is recorded again", "backend", b)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// retire removes what was destroyed long ago, at once and then at its pace.
func (l *Loop) retire(ctx context.Context) {
	tick := time.NewTicker(l.c.RetireEvery)
	defer tick.Stop()
	for {
		done, err := l.engine.Purge(ctx, l.c.CleanupTTL)
		if done != (retention.Purged{}) {
			l.c.Logger.Info("loop: removed what was destroyed long ago", "sandboxes", done.Sandboxes, "environments", done.Environments,
				"events", done.Events, "deliveries", done.Deliveries, "findings", done.Findings)
		}
		if l.passed(ctx, PassRetire, "", err) {
			l.c.Logger.Warn("loop: removing what was destroyed long ago; it is tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// tendAfter is how long after a commit warm pools are looked at. What fills them would take the engine's
// time from the acquire that has just taken from one; and it bounds how often that is.
const tendAfter = 200 * time.Millisecond

// tend keeps the warm pools filled, after commits and at the pace of the poll.
func (l *Loop) tend(ctx context.Context) {
	for ctx.Err() == nil {
		changed := l.engine.Changed()
		if err := l.engine.TendPools(ctx); l.passed(ctx, PassPools, "", err) {
			l.c.Logger.Error("loop: tending warm pools", "error", err)
		}
		sleep(ctx, l.c.Poll, changed)
		sleep(ctx, tendAfter, nil)
	}
}

// pursueAfter bounds how often the loop looks for commands and processes without a follower.
const pursueAfter = 200 * time.Millisecond

// pursue does something at each commit, and when it says that there will be something to do.
func (l *Loop) pursue(ctx context.Context, pass, what string, do func(context.Context) (next time.Time, err error)) {
	for ctx.Err() == nil {
		changed := l.engine.Changed()
		next, err := do(ctx)
		if l.passed(ctx, pass, "", err) {
			l.c.Logger.Error("loop: "+what, "error", err)
		}
		pause := l.c.Poll
		if !next.IsZero() {
			pause = min(pause, max(next.Sub(l.engine.Now()), pursueAfter))
		}
		sleep(ctx, pause, changed)
		sleep(ctx, pursueAfter, nil)
	}
}

// sleep returns after a time, at a commit, or when ctx ends.
func sleep(ctx context.Context, d time.Duration, changed <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-changed:
	case <-timer.C:
	}
}
