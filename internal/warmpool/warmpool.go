// Package warmpool keeps sandboxes ready for future leases. They are rows without a lease. They are spawned, put to
// sleep at once unless the pool keeps them awake, and end by the pool's ttl. The lifecycle treats them like all others.
// This package only decides how many there are, and assigns them: an acquire gives such a row to a lease, whose
// generation it then is. It calls no backend.
package warmpool

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/pools"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Owner is the owner of waiting sandboxes.
const Owner = "pool"

// Config configures a Service. All fields are required.
type Config struct {
	Store *ledger.Store
	// NewSandbox returns the row of a sandbox for a lease, or for the pool if leaseID is nil.
	NewSandbox func(now micro.Time, in *ledger.Environment, spec sandbox.EnvironmentSpec, a sandbox.Acquire,
		leaseID *string, generation int64) *ledger.Sandbox
	// End ends a waiting sandbox, inside a transaction.
	End func(tx *ledger.Tx, s *ledger.Sandbox, end lifecycle.Ending) error
	// Spent reports whether the environment's budget of this month is spent.
	Spent func(tx *ledger.Tx, env *ledger.Environment) (bool, error)
}

// Service is safe for concurrent use, by any number of processes on one ledger.
type Service struct {
	config Config
}

var (
	_ lifecycle.Settler = (*Service)(nil)
	_ lifecycle.Failer  = (*Service)(nil)
)

// New returns a Service.
func New(c Config) *Service { return &Service{c} }

// restsAtOnce is sleep_after of a sandbox that waits asleep. One that waits awake has 0, which means never.
const restsAtOnce = micro.Span(1)

func sleepAfter(p *sandbox.WarmPool) micro.Span {
	if p.Runs() {
		return 0
	}
	return restsAtOnce
}

// Lost reports whether a lease ended because the sandbox that it took from a pool was unusable.
func Lost(s *ledger.Sandbox) bool {
	isLost := s.Ending.By == sandbox.EndedByFailed || s.Ending.By == sandbox.EndedByVanished
	return s.Unassigned() && isLost && !s.Status.ErrorCode.FailsEverywhere()
}

// Reconcile brings every warm pool to its size: it begins missing sandboxes and ends surplus or outdated ones. Any
// number of processes may call it at the same time.
func (v *Service) Reconcile(ctx context.Context) error {
	var todo []string
	err := v.config.Store.Read(ctx, func(tx *ledger.Tx) error {
		todo = nil
		envs, err := pools.In(tx).Environments()
		if err != nil || len(envs) == 0 {
			return err
		}
		restored, err := tx.RestoredAt()
		if err != nil {
			return err
		}
		for i := range envs {
			rows, err := pools.In(tx).Sandboxes(envs[i].ID)
			if err != nil {
				return err
			}
			size, err := v.sizeOf(tx, &envs[i])
			if err != nil {
				return err
			}
			if p := planFor(&envs[i], rows, size, restored, tx.Now); len(p.end) > 0 || p.begin > 0 {
				todo = append(todo, envs[i].ID)
			}
		}
		return nil
	})
	for _, id := range todo {
		err = errors.Join(err, v.config.Store.Write(ctx, func(tx *ledger.Tx) error { return v.reconcile(tx, id) }))
	}
	return err
}

// reconcile brings one pool to its size. It plans again, because another process may have done so meanwhile.
func (v *Service) reconcile(tx *ledger.Tx, environmentID string) error {
	env, err := tx.KnownEnvironment(environmentID)
	if err != nil {
		return err
	}
	rows, err := pools.In(tx).Sandboxes(environmentID)
	if err != nil {
		return err
	}
	restored, err := tx.RestoredAt()
	if err != nil {
		return err
	}
	size, err := v.sizeOf(tx, env)
	if err != nil {
		return err
	}
	p := planFor(env, rows, size, restored, tx.Now)
	for _, x := range p.end {
		err := tx.UpdateRow(x.row, func(s *ledger.Sandbox) error {
			return v.config.End(tx, s, lifecycle.Ending{By: sandbox.EndedByEnvironment, Reason: x.reason, At: tx.Now})
		})
		if err != nil {
			return err
		}
	}
	for range p.begin {
		if err := v.begin(tx, env); err != nil {
			return err
		}
	}
	return nil
}

// begin adds the row of one more waiting sandbox.
func (v *Service) begin(tx *ledger.Tx, env *ledger.Environment) error {
	s := v.config.NewSandbox(tx.Now, env, env.Spec, sandbox.Acquire{Owner: Owner}, nil, 0)
	s.Terms = termsOf(s.Terms, env.Spec.WarmPool)
	s.Origin = ledger.Origin{PooledAt: tx.Now, HardDeadline: s.Deadline()}
	if err := tx.AppendSandboxEvent(s, sandbox.EventAccepted, map[string]any{"owner": Owner}); err != nil {
		return err
	}
	return tx.CreateSandbox(s)
}

// termsOf returns the terms of a waiting sandbox, from the terms of a lease. A lease that takes the sandbox
// late still has its whole max_lifetime.
func termsOf(t ledger.Terms, p *sandbox.WarmPool) ledger.Terms {
	t.TTL, t.SleepAfter = micro.SpanOf(p.TTL), sleepAfter(p)
	t.MaxLifetime += t.TTL
	return t
}

// plan is the work on one pool.
type plan struct {
	end   []end
	begin int64
}

type end struct {
	row    *ledger.Sandbox
	reason string
}

// wanted is how many sandboxes should wait, and why not more.
type wanted struct {
	size int64
	why  string
}

// planFor compares a pool's rows with what its environment wants. restored is when the ledger was last restored.
// It is a pure function.
func planFor(env *ledger.Environment, rows []ledger.Sandbox, want wanted, restored, now micro.Time) (p plan) {
	var kept []*ledger.Sandbox
	for i := range rows {
		s := &rows[i]
		if !s.Live(0, now) {
			continue
		}
		if reason := outdated(s, env, restored); reason != "" {
			p.end = append(p.end, end{s, reason})
			continue
		}
		kept = append(kept, s)
	}
	for int64(len(kept)) > want.size { // end the youngest, which may not be created yet
		last := len(kept) - 1
		p.end = append(p.end, end{kept[last], want.why})
		kept = kept[:last]
	}
	w := env.Spec.WarmPool
	missing := want.size - int64(len(kept))
	if missing == 0 || w.Paused || env.Pool.Failures >= sandbox.MaxPoolFailures || env.Pool.DueAt > now {
		return p
	}
	p.begin = missing
	if env.Pool.Failures > 0 {
		p.begin = 1 // one probes whether creation works again
	}
	if env.Pool.Failures > 0 && beingMade(kept) {
		p.begin = 0
	}
	return p
}

func beingMade(rows []*ledger.Sandbox) bool {
	for _, s := range rows {
		if s.Phase == sandbox.PhasePending {
			return true
		}
	}
	return false
}

// sizeOf returns how many sandboxes should wait in an environment's pool.
func (v *Service) sizeOf(tx *ledger.Tx, env *ledger.Environment) (wanted, error) {
	w := env.Spec.WarmPool
	switch {
	case env.Unmade():
		return wanted{0, "its environment is being created"}, nil
	case env.Status != sandbox.EnvironmentOpen:
		return wanted{0, "its environment is " + string(env.Status) + " and keeps no warm pool"}, nil
	case w == nil:
		return wanted{0, "its environment no longer has a warm pool"}, nil
	}
	if spent, err := v.config.Spent(tx, env); err != nil || spent {
		return wanted{0, "the budget of its environment is spent"}, err
	}
	demand, err := demandOf(tx, env)
	size := w.SizeFor(demand)
	return wanted{size, fmt.Sprintf("its warm pool has a size of %d", size)}, err
}

// demandOf returns the size of the latest burst of leases in an environment, 0 if its pool does not grow.
func demandOf(tx *ledger.Tx, env *ledger.Environment) (int64, error) {
	if w := env.Spec.WarmPool; w == nil || w.MaxSize <= w.Size {
		return 0, nil
	}
	begun, err := pools.In(tx).LeasesBegun(env.ID, tx.Now.Add(-micro.SpanOf(sandbox.PoolDemandMemory)))
	return mostWithin(begun, micro.SpanOf(sandbox.PoolDemandWindow)), err
}

// mostWithin returns the largest number of the sorted times that are within one span.
func mostWithin(at []micro.Time, within micro.Span) int64 {
	most, first := 0, 0
	for i := range at {
		for at[first].Add(within) < at[i] {
			first++
		}
		most = max(most, i-first+1)
	}
	return int64(most)
}

// outdated says why a waiting sandbox differs from a new one, "" if it does not. A sandbox that one agent has
// used must never go to another agent: for sandboxes from before a restore of the ledger this is unknown.
func outdated(s *ledger.Sandbox, env *ledger.Environment, restored micro.Time) string {
	changed := func(what string) string { return "the " + what + " of its environment has changed" }
	difference := s.Difference(ledger.NewContainer(env.Type, env.Spec))
	switch {
	case s.Origin.PooledAt < restored:
		return "the ledger was restored from a backup, and a lease may have used the sandbox since the backup"
	case s.Backend != env.Backend || s.Instance != env.Instance:
		return changed("backend")
	case difference != "":
		return changed(difference)
	case s.MaxLifetime-s.TTL < micro.SpanOf(env.Spec.MaxLifetime): // see termsOf
		return changed("max_lifetime")
	case env.Spec.WarmPool != nil && s.SleepAfter != sleepAfter(env.Spec.WarmPool):
		return changed("mode of the warm pool")
	case s.SleepAfter == 0 && s.Phase == sandbox.PhaseAsleep:
		return "it is asleep, and its warm pool keeps sandboxes awake"
	}
	return ""
}

// Settled implements lifecycle.Settler: sandboxes of the pool can be created again.
func (v *Service) Settled(tx *ledger.Tx, s *ledger.Sandbox, t *lifecycle.Step) error {
	if t.Action != lifecycle.Spawn || !s.Pooled() {
		return nil
	}
	env, err := tx.KnownEnvironment(s.EnvironmentID)
	if err != nil || env.Pool.Failures == 0 {
		return err
	}
	return tx.UpdateEnvironmentRow(env, func(env *ledger.Environment) error {
		env.Pool = ledger.PoolFailures{}
		return nil
	})
}

// Failed implements lifecycle.Failer: a sandbox of the pool could not be created. Failures of sandboxes that
// began before the last failure was known are not counted again.
func (v *Service) Failed(tx *ledger.Tx, s *ledger.Sandbox, cause error) error {
	if !s.Pooled() {
		return nil
	}
	env, err := tx.KnownEnvironment(s.EnvironmentID)
	if err != nil || s.Origin.PooledAt < env.Pool.DueAt {
		return err
	}
	return tx.UpdateEnvironmentRow(env, func(env *ledger.Environment) error {
		n := env.Pool.Failures + 1
		env.Pool = ledger.PoolFailures{
			Failures: n,
			Error:    cause.Error(),
			DueAt:    tx.Now.Add(micro.SpanOf(lifecycle.Backoff(n))),
		}
		return nil
	})
}

// Status returns the status of an environment's warm pool, nil if it has none.
func (v *Service) Status(tx *ledger.Tx, env *ledger.Environment) (*sandbox.PoolStatus, error) {
	if env.Spec.WarmPool == nil {
		return nil, nil
	}
	n, err := pools.In(tx).Counts(env.ID)
	ready, other := sandbox.PhaseAsleep, sandbox.PhaseAwake
	if env.Spec.WarmPool.Runs() {
		ready, other = other, ready
	}
	p := &sandbox.PoolStatus{
		Ready:     n[ready],
		Pending:   n[sandbox.PhasePending] + n[other],
		Failures:  env.Pool.Failures,
		LastError: env.Pool.Error,
	}
	if env.Pool.Failures < sandbox.MaxPoolFailures {
		p.RetryAt = env.Pool.DueAt.Time()
	}
	return p, err
}

// Find returns a waiting sandbox for a new generation of a lease, nil if none fits.
func Find(tx *ledger.Tx, want *ledger.Sandbox, env *ledger.Environment) (*ledger.Sandbox, error) {
	if env.Spec.WarmPool == nil {
		return nil, nil
	}
	rows, err := pools.In(tx).Sandboxes(env.ID)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	restored, err := tx.RestoredAt()
	if err != nil {
		return nil, err
	}
	return choose(rows, want, env, restored, tx.Now), nil
}

// Take gives a waiting sandbox to a new generation of a lease. The sandbox is assigned next.
func Take(tx *ledger.Tx, s, want *ledger.Sandbox) error {
	// Until now the environment paid for it. The lease pays once it is ready, or once code runs in it before.
	if err := accounting.In(tx).EnterState(s, sandbox.PhasePending, tx.Now, nil); err != nil {
		return err
	}
	s.Tenure, s.Terms, s.Snapshot = want.Tenure, want.Terms, want.Snapshot
	s.Phase = sandbox.PhasePending
	s.Schedule.Reset(tx.Now)
	return nil
}

// choose returns the sandbox that has waited longest among those that fit. In a paused pool, one that is
// about to sleep comes last.
func choose(rows []ledger.Sandbox, want *ledger.Sandbox, env *ledger.Environment,
	restored, now micro.Time) *ledger.Sandbox {
	var awake *ledger.Sandbox
	for i := range rows {
		s := &rows[i]
		if !s.Live(0, now) || outdated(s, env, restored) != "" || s.Claim.Holds(now) || s.Schedule.Attempts > 0 ||
			now.Add(want.MaxLifetime) > s.Origin.HardDeadline {
			continue
		}
		switch s.Phase {
		case sandbox.PhaseAsleep:
			return s
		case sandbox.PhaseAwake:
			if awake == nil {
				awake = s
			}
		}
	}
	return awake
}
