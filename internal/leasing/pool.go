package leasing

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A warm pool's sandboxes are rows without a lease. They are spawned, put to sleep at once unless the pool runs, end by
// the pool's ttl, and are worked on like all others; TendPools only decides how many there are. An
// acquire takes one by giving its row to the lease: from then on it is that lease's generation.

// poolOwner owns what waits in a pool.
const poolOwner = "pool"

// pooled reports whether a sandbox waits in a pool, without a lease.
func pooled(s *ledger.Sandbox) bool { return s.LeaseID == nil }

// restsAtOnce is sleep_after of a sandbox that waits asleep; one that waits awake has 0, which is never.
const restsAtOnce = ledger.Span(1)

func poolSleepAfter(p *sandbox.WarmPool) ledger.Span {
	if p.Runs() {
		return 0
	}
	return restsAtOnce
}

// unassigned reports whether a sandbox was taken from a pool and does not know it yet.
func unassigned(s *ledger.Sandbox) bool {
	return s.LeaseID != nil && s.Origin.PooledAt != 0 && s.ReadyAt == 0
}

// isLostFromPool reports whether a lease ended because the sandbox that it took from a pool could not be used.
func isLostFromPool(s *ledger.Sandbox) bool {
	isLost := s.Ending.By == sandbox.EndedByFailed || s.Ending.By == sandbox.EndedByVanished
	return unassigned(s) && isLost && s.Standing.ErrorCode != sandbox.ReasonPostStartFailed
}

// subject names what a sandbox is, for errors.
func subject(s *ledger.Sandbox) string {
	if pooled(s) {
		return "sandbox " + s.ID + " of the pool of environment " + s.EnvironmentID
	}
	return "lease " + s.Lease()
}

// TendPools brings every warm pool to its size: it begins what is missing and ends what is too much
// or out of date. It calls no backend, and any number of engines may do it at once.
func (e *Engine) TendPools(ctx context.Context) error {
	var todo []string
	err := e.store.Read(ctx, func(tx *ledger.Tx) error {
		todo = nil
		envs, err := tx.PoolEnvironments()
		if err != nil || len(envs) == 0 {
			return err
		}
		restored, err := tx.RestoredAt()
		if err != nil {
			return err
		}
		for i := range envs {
			rows, err := tx.PoolSandboxes(envs[i].ID)
			if err != nil {
				return err
			}
			demand, err := poolDemand(tx, &envs[i])
			if err != nil {
				return err
			}
			if p := planPool(&envs[i], rows, demand, restored, tx.Now); len(p.end) > 0 || p.begin > 0 {
				todo = append(todo, envs[i].ID)
			}
		}
		return nil
	})
	for _, id := range todo {
		err = errors.Join(err, e.store.Write(ctx, func(tx *ledger.Tx) error { return e.tendPool(tx, id) }))
	}
	return err
}

// tendPool does what one pool needs. It plans anew: another engine may have done it meanwhile.
func (e *Engine) tendPool(tx *ledger.Tx, environmentID string) error {
	env, err := mustEnvironment(tx, environmentID)
	if err != nil {
		return err
	}
	rows, err := tx.PoolSandboxes(environmentID)
	if err != nil {
		return err
	}
	restored, err := tx.RestoredAt()
	if err != nil {
		return err
	}
	demand, err := poolDemand(tx, env)
	if err != nil {
		return err
	}
	p := planPool(env, rows, demand, restored, tx.Now)
	for _, x := range p.end {
		err := tx.UpdateRow(x.row, func(s *ledger.Sandbox) error {
			return e.endLease(tx, s, ending{by: sandbox.EndedByEnvironment, reason: x.reason, at: tx.Now})
		})
		if err != nil {
			return err
		}
	}
	for range p.begin {
		if err := e.beginPooled(tx, env); err != nil {
			return err
		}
	}
	return nil
}

// beginPooled makes the row of one more sandbox that waits.
func (e *Engine) beginPooled(tx *ledger.Tx, env *ledger.Environment) error {
	s := e.newSandbox(tx.Now, env, env.Spec, sandbox.Acquire{Owner: poolOwner}, nil, 0)
	s.Terms = poolTerms(s.Terms, env.Spec.WarmPool)
	s.Origin = ledger.Origin{PooledAt: tx.Now, HardDeadline: deadline(s)}
	if err := tx.AppendSandboxEvent(s, sandbox.EventAccepted, map[string]any{"owner": poolOwner}); err != nil {
		return err
	}
	return tx.CreateSandbox(s)
}

// poolTerms are those of a sandbox that waits, by the terms of a lease. The lease that takes the sandbox, however late,
// still has its whole max_lifetime.
func poolTerms(t ledger.Terms, p *sandbox.WarmPool) ledger.Terms {
	t.TTL, t.SleepAfter = ledger.SpanOf(p.TTL), poolSleepAfter(p)
	t.MaxLifetime += t.TTL
	return t
}

// poolPlan is what a pool needs.
type poolPlan struct {
	end   []pooledEnd
	begin int64
}

type pooledEnd struct {
	row    *ledger.Sandbox
	reason string
}

// planPool compares a pool's rows with what its environment wants after a demand, on a ledger that was last restored at a
// moment. Pure.
func planPool(env *ledger.Environment, rows []ledger.Sandbox, demand int64, restored, now ledger.Time) (p poolPlan) {
	size, why := poolSize(env, demand)
	var kept []*ledger.Sandbox
	for i := range rows {
		s := &rows[i]
		if !live(s, 0, now) {
			continue
		}
		if reason := outdated(s, env, restored); reason != "" {
			p.end = append(p.end, pooledEnd{s, reason})
			continue
		}
		kept = append(kept, s)
	}
	for int64(len(kept)) > size { // the youngest go: they may not even be made
		last := len(kept) - 1
		p.end = append(p.end, pooledEnd{kept[last], why})
		kept = kept[:last]
	}
	w := env.Spec.WarmPool
	missing := size - int64(len(kept))
	if missing == 0 || w.Paused || env.Pool.Failures >= sandbox.MaxPoolFailures || env.Pool.DueAt > now {
		return p
	}
	p.begin = missing
	if env.Pool.Failures > 0 {
		p.begin = 1 // one finds out whether it works again
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

// poolSize is how many sandboxes an environment wants to wait after a demand, and why no more.
func poolSize(env *ledger.Environment, demand int64) (int64, string) {
	switch w := env.Spec.WarmPool; {
	case isUnmade(env):
		return 0, "its environment is being created"
	case env.Status != sandbox.EnvironmentOpen:
		return 0, "its environment is " + string(env.Status) + " and keeps no warm pool"
	case w == nil:
		return 0, "its environment has no warm pool any more"
	default:
		size := w.SizeFor(demand)
		return size, fmt.Sprintf("its warm pool has a size of %d", size)
	}
}

// poolDemand is how many leases of an environment began close together lately, 0 where its pool does not grow.
func poolDemand(tx *ledger.Tx, env *ledger.Environment) (int64, error) {
	if w := env.Spec.WarmPool; w == nil || w.MaxSize <= w.Size {
		return 0, nil
	}
	begun, err := tx.LeasesBegun(env.ID, tx.Now.Add(-ledger.SpanOf(sandbox.PoolDemandMemory)))
	return mostWithin(begun, ledger.SpanOf(sandbox.PoolDemandWindow)), err
}

// mostWithin returns how many of the moments, in order, lie at most within a span of each other.
func mostWithin(at []ledger.Time, within ledger.Span) int64 {
	most, first := 0, 0
	for i := range at {
		for at[first].Add(within) < at[i] {
			first++
		}
		most = max(most, i-first+1)
	}
	return int64(most)
}

// outdated says why a waiting sandbox is not what a lease would be given now, "" if it is. What one agent has used
// is never given to another: the use of what waited before the ledger was restored is unknown.
func outdated(s *ledger.Sandbox, env *ledger.Environment, restored ledger.Time) string {
	changed := func(what string) string { return "the " + what + " of its environment has changed" }
	switch {
	case s.Origin.PooledAt < restored:
		return "the ledger was restored, and a lease may have had it since the backup was taken"
	case s.Backend != env.Backend || s.Instance != env.Instance:
		return changed("backend")
	case s.EnvironmentType != env.Type:
		return changed("type")
	case s.Image != env.Spec.Image:
		return changed("image")
	case s.Resources() != env.Spec.Resources:
		return changed("size")
	case s.Network != env.Spec.Network:
		return changed("network")
	case !s.Egress.Equal(env.Spec.EgressRules()):
		return changed("egress")
	case env.Spec.WarmPool != nil && s.SleepAfter != poolSleepAfter(env.Spec.WarmPool):
		return changed("mode of the warm pool")
	case s.SleepAfter == 0 && s.Phase == sandbox.PhaseAsleep:
		return "it is asleep, and its warm pool keeps sandboxes awake"
	case s.SleepMode != env.Spec.SleepMode:
		return changed("sleep mode")
	case s.Confinement != env.Spec.Confinement:
		return changed("confinement")
	case !s.Host.Equal(env.Spec.HostAccess):
		return changed("access to the host")
	case !maps.Equal(s.Env, env.Spec.Env):
		return changed("env")
	}
	return ""
}

// poolSpawned records that a pool's sandboxes can be made again.
func poolSpawned(tx *ledger.Tx, s *ledger.Sandbox) error {
	env, err := mustEnvironment(tx, s.EnvironmentID)
	if err != nil || env.Pool.Failures == 0 {
		return err
	}
	return tx.UpdateEnvironmentRow(env, func(env *ledger.Environment) error {
		env.Pool = ledger.PoolFailures{}
		return nil
	})
}

// poolFailed records that a pool's sandbox could not be made. Those that were begun before the last
// failure was known say nothing new.
func poolFailed(tx *ledger.Tx, s *ledger.Sandbox, cause error) error {
	env, err := mustEnvironment(tx, s.EnvironmentID)
	if err != nil || s.Origin.PooledAt < env.Pool.DueAt {
		return err
	}
	return tx.UpdateEnvironmentRow(env, func(env *ledger.Environment) error {
		n := env.Pool.Failures + 1
		env.Pool = ledger.PoolFailures{Failures: n, Error: cause.Error(), DueAt: tx.Now.Add(ledger.SpanOf(backoff(n)))}
		return nil
	})
}

// poolStatus returns where an environment's warm pool stands, nil when it has none.
func (e *Engine) poolStatus(tx *ledger.Tx, env *ledger.Environment) (*sandbox.PoolStatus, error) {
	if env.Spec.WarmPool == nil {
		return nil, nil
	}
	n, err := tx.PoolCounts(env.ID)
	ready, other := sandbox.PhaseAsleep, sandbox.PhaseAwake
	if env.Spec.WarmPool.Runs() {
		ready, other = other, ready
	}
	p := &sandbox.PoolStatus{Ready: n[ready], Pending: n[sandbox.PhasePending] + n[other], Failures: env.Pool.Failures, LastError: env.Pool.Error}
	if env.Pool.Failures < sandbox.MaxPoolFailures {
		p.RetryAt = env.Pool.DueAt.Time()
	}
	return p, err
}

// findInPool returns the waiting sandbox that a new generation of a lease can have, nil when none fits.
func findInPool(tx *ledger.Tx, want *ledger.Sandbox, env *ledger.Environment) (*ledger.Sandbox, error) {
	if env.Spec.WarmPool == nil {
		return nil, nil
	}
	rows, err := tx.PoolSandboxes(env.ID)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	restored, err := tx.RestoredAt()
	if err != nil {
		return nil, err
	}
	return choose(rows, want, env, restored, tx.Now), nil
}

// takeFromPool gives a waiting sandbox to a new generation of a lease, to be assigned.
func takeFromPool(tx *ledger.Tx, s, want *ledger.Sandbox) error {
	// Until now it was the environment's. Nothing counts until it is the lease's and awake.
	if err := tx.Accounting().EnterState(s, sandbox.PhasePending, tx.Now, nil); err != nil {
		return err
	}
	s.Tenure, s.Terms, s.Snapshot = want.Tenure, want.Terms, want.Snapshot
	s.Phase = sandbox.PhasePending
	s.Schedule.Reset(tx.Now)
	return nil
}

// choose returns the sandbox that waits longest and can be what is wanted. Where they wait asleep, one that is about to
// sleep comes last.
func choose(rows []ledger.Sandbox, want *ledger.Sandbox, env *ledger.Environment, restored, now ledger.Time) *ledger.Sandbox {
	var awake *ledger.Sandbox
	for i := range rows {
		s := &rows[i]
		if !live(s, 0, now) || outdated(s, env, restored) != "" || s.Claim.Holds(now) || s.Schedule.Attempts > 0 ||
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
