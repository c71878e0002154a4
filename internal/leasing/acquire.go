package leasing

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/environments"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/counts"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/witnesses"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/warmpool"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Acquire implements service.Leases. It writes the row, with a claim, before it calls the backend. A caller that finds
// the lease pending waits for it, and takes over when the claim expires.
func (v *Service) Acquire(ctx context.Context, a sandbox.Acquire) (sandbox.Acquired, error) {
	if err := a.Validate(); err != nil {
		return sandbox.Acquired{}, err
	}
	begun, err := v.accept(ctx, a, true)
	for errors.Is(err, environments.ErrUnmade) && !a.NoWait {
		waited, waitErr := v.environments.Await(ctx, a.EnvironmentID)
		if waitErr != nil {
			return sandbox.Acquired{}, waitErr
		}
		if begun, err = v.accept(ctx, a, true); !waited {
			break // no other request is creating it
		}
	}
	if err != nil {
		return sandbox.Acquired{}, err
	}
	if !a.NoWait {
		return v.awaitReady(ctx, a, begun)
	}
	if err := v.awaitReadyInBackground(a, begun); err != nil {
		return sandbox.Acquired{}, err
	}
	l, err := v.readView(ctx, begun.sandboxID)
	return sandbox.Acquired{Lease: l, IsNew: begun.isNew}, err
}

var (
	// errLostFromPool: the sandbox that was taken from a pool never became the lease's.
	errLostFromPool = errors.New("the sandbox from the pool could not be used")
	// errTakenBack: the lease belonged to a batch that was rolled back, because one of its leases could not begin.
	errTakenBack = errors.New("its batch was rolled back: retry")
)

// beginning is an accepted lease, with the first step of a new one. The step is nil if another caller takes it, or if
// it has to wait.
type beginning struct {
	sandboxID string
	first     *lifecycle.Task
	isNew     bool
}

// accept returns the agent's live lease, or stores its next generation.
func (v *Service) accept(ctx context.Context, a sandbox.Acquire, warm bool) (b beginning, err error) {
	err = v.Reaching(ctx, func() error {
		return v.store.Write(ctx, func(tx *ledger.Tx) (err error) {
			b, err = v.findOrBegin(tx, a, "", warm)
			return err
		})
	})
	if sandbox.CodeOf(err) == sandbox.BudgetExceeded {
		// The refusal rolled back the budget events of its transaction.
		if err := v.billing.CheckBudget(ctx, a.EnvironmentID); err != nil {
			v.log.WarnContext(ctx, "leasing: looking at a budget", "environment", a.EnvironmentID, "error", err)
		}
	}
	if err != nil {
		return beginning{}, err
	}
	v.KeepClaim(b.first)
	return b, nil
}

// poolTries is how many sandboxes of a pool an acquire tries before it creates one.
const poolTries = 2

// awaitReady waits until the sandbox of an accepted lease can be used. If the sandbox from a pool is lost, it takes
// another one from the pool, up to poolTries times, and then creates one. If the batch of another request rolled the
// lease back, it acquires the lease again.
func (v *Service) awaitReady(ctx context.Context, a sandbox.Acquire, b beginning) (sandbox.Acquired, error) {
	for lost := 0; ; {
		got, err := v.awaitReadyOnce(ctx, b)
		switch {
		case errors.Is(err, errLostFromPool) && lost < poolTries:
			lost++
		case !errors.Is(err, errTakenBack):
			return got, err
		}
		if b, err = v.accept(ctx, a, lost < poolTries); err != nil {
			return sandbox.Acquired{}, err
		}
	}
}

// awaitReadyInBackground is awaitReady without a waiting caller. If this process dies, the loop continues.
func (v *Service) awaitReadyInBackground(a sandbox.Acquire, b beginning) error {
	if b.first == nil {
		return nil // another caller or the loop takes the first step
	}
	began := v.Background(func() {
		if _, err := v.awaitReady(v.Life(), a, b); err != nil {
			v.log.Warn("leasing: a lease that was acquired in the background is not ready",
				lifecycle.AboutLease(sandbox.LeaseID(a.AgentDID, a.EnvironmentID), b.sandboxID), "error", err)
		}
	})
	if !began {
		v.ReleaseClaim(b.first)
		return lifecycle.ErrClosing
	}
	return nil
}

func (v *Service) awaitReadyOnce(ctx context.Context, b beginning) (sandbox.Acquired, error) {
	if t := b.first; t != nil {
		// The row records an assign that failed permanently. The lease then gets another sandbox.
		if err := v.TakeStep(ctx, t); err != nil &&
			(t.Action != lifecycle.Assign || ctx.Err() != nil || sandbox.IsRetryable(err)) {
			return sandbox.Acquired{}, lifecycle.AsError(err)
		}
	}
	var (
		s *ledger.Sandbox
		l sandbox.Lease
	)
	err := v.Await(ctx, b.sandboxID, func(tx *ledger.Tx, row *ledger.Sandbox) (isDone bool, err error) {
		if row.Phase == sandbox.PhasePending && row.Desired == ledger.Present {
			return false, nil
		}
		s = row
		l, err = v.view(tx, row)
		return true, err
	})
	if err != nil {
		return sandbox.Acquired{}, lifecycle.AsError(err)
	}
	if s.Status.ErrorCode.FailsEverywhere() {
		return sandbox.Acquired{}, sandbox.Errorf(sandbox.Failed, "lease %s: %s", s.Lease(), s.Ending.Reason).
			WithReason(s.Status.ErrorCode)
	}
	if takenBack(s) {
		return sandbox.Acquired{}, sandbox.Errorf(sandbox.Unavailable, "lease %s: %w", s.Lease(), errTakenBack)
	}
	if warmpool.Lost(s) {
		return sandbox.Acquired{}, sandbox.Errorf(sandbox.Failed, "%s: %w: %s", s.Subject(), errLostFromPool,
			s.Ending.Reason).WithReason(sandbox.ReasonCreationFailed)
	}
	if s.Ending.By == sandbox.EndedByFailed {
		return sandbox.Acquired{}, sandbox.Errorf(sandbox.Failed, "lease %s: the sandbox did not start: %s",
			s.Lease(), s.Ending.Reason).WithReason(sandbox.ReasonCreationFailed)
	}
	return sandbox.Acquired{Lease: l, IsNew: b.isNew}, nil
}

// findOrBegin returns the sandbox of a live lease, or begins the next generation with a claim for its first step. The
// generation belongs to a batch unless batchID is "". warm allows a sandbox from a pool.
func (v *Service) findOrBegin(tx *ledger.Tx, a sandbox.Acquire, batchID string, warm bool) (b beginning, err error) {
	env, err := tx.KnownEnvironment(a.EnvironmentID)
	if err != nil {
		return b, err
	}
	leaseID := sandbox.LeaseID(a.AgentDID, a.EnvironmentID)
	l, err := tx.Lease(leaseID)
	if err != nil {
		return b, err
	}
	var last int64
	if l != nil {
		s, held, err := lifecycle.CurrentOf(tx, leaseID)
		if err != nil {
			return b, err
		}
		if s.Live(held, tx.Now) {
			return beginning{sandboxID: s.ID}, sameLease(s, a)
		}
		if end := lifecycle.TimeUp(s, held, tx.Now); end != nil && s.Desired == ledger.Present {
			if err := tx.UpdateRow(s, func(s *ledger.Sandbox) error { return v.End(tx, s, *end) }); err != nil {
				return b, err
			}
		}
		last = l.Generation
	}
	next, err := v.mayBegin(tx, env, a, last)
	if err != nil {
		return b, err
	}
	next.BatchID = batchID
	t, s, err := v.begin(tx, env, next, warm && a.Choice == sandbox.SandboxChoice{})
	if err != nil {
		return b, err
	}
	return beginning{sandboxID: s.ID, first: t, isNew: true}, tx.BeginGeneration(l, s)
}

// mayBegin returns the row of a lease's next generation, unless its environment, a ceiling or the budget forbids it.
func (v *Service) mayBegin(tx *ledger.Tx, env *ledger.Environment, a sandbox.Acquire,
	last int64) (*ledger.Sandbox, error) {
	if err := a.Settings.CheckLabels(env.Spec.Labels); err != nil {
		return nil, err
	}
	spec, err := a.Choice.Apply(a.Settings.Apply(env.Spec), a.MayExceed, a.Tenant)
	if err != nil {
		return nil, err
	}
	if err := environments.MayLease(env, spec); err != nil {
		return nil, err
	}
	if err := mayHold(tx, env.ID, a.Tenant); err != nil {
		return nil, err
	}
	if err := v.Answers(env.Backend, env.Instance); err != nil {
		return nil, err
	}
	generation, err := witnesses.In(tx).NextGeneration(env.Instance, last)
	if err != nil {
		return nil, err
	}
	leaseID := sandbox.LeaseID(a.AgentDID, a.EnvironmentID)
	next := v.newSandbox(tx.Now, env, spec, a, &leaseID, generation)
	return next, v.billing.Admit(tx, env, next, next.ExpiresAt(0, tx.Now))
}

// mayHold rejects a lease that exceeds the tenant's ceiling in an environment.
func mayHold(tx *ledger.Tx, environmentID string, t *sandbox.Tenant) error {
	if t == nil || t.Ceiling.Leases == 0 {
		return nil
	}
	living, err := counts.In(tx).Leases([]string{environmentID})
	if err != nil {
		return err
	}
	c := living[environmentID]
	return t.CheckLeases(c.Live() + c.Failed + c.Deleting)
}

// begin stores a generation with a claim for its first step, in a sandbox from the pool or a new one. The task is nil
// if the step has to wait.
func (v *Service) begin(tx *ledger.Tx, env *ledger.Environment, want *ledger.Sandbox,
	warm bool) (t *lifecycle.Task, row *ledger.Sandbox, err error) {
	if warm {
		if row, err = warmpool.Find(tx, want, env); err != nil {
			return nil, nil, err
		}
	}
	accepted := map[string]any{"owner": want.Owner, "generation": want.Generation}
	if row == nil {
		if err := tx.AppendSandboxEvent(want, sandbox.EventAccepted, accepted); err != nil {
			return nil, nil, err
		}
		if t, err = v.ClaimStep(tx, want, lifecycle.Spawn); err != nil {
			return nil, nil, err
		}
		return t, want, tx.CreateSandbox(want)
	}
	accepted["from_pool"] = true
	awake := row.Phase == sandbox.PhaseAwake // then it needs no wake
	err = tx.UpdateRow(row, func(s *ledger.Sandbox) error {
		if err := warmpool.Take(tx, s, want); err != nil {
			return err
		}
		if err := tx.AppendSandboxEvent(s, sandbox.EventAccepted, accepted); err != nil {
			return err
		}
		if t, err = v.ClaimStep(tx, s, lifecycle.Assign); t != nil {
			t.Awake = awake
		}
		return err
	})
	return t, row, err
}

// newSandbox returns the row of a sandbox for a lease, or for a pool.
func (v *Service) newSandbox(now micro.Time, in *ledger.Environment, spec sandbox.EnvironmentSpec, a sandbox.Acquire,
	leaseID *string, generation int64) *ledger.Sandbox {
	s := &ledger.Sandbox{
		ID: v.ids(sandbox.SandboxIDLength), EnvironmentID: in.ID, Backend: in.Backend, Instance: in.Instance,
		Container: ledger.NewContainer(in.Type, spec),
		Tenure:    ledger.NewTenure(leaseID, generation, a.AgentDID, a.Owner, now),
		Terms:     ledger.NewTerms(spec, a.Settings),
		Desired:   ledger.Present, Phase: sandbox.PhasePending, Schedule: ledger.Schedule{DueAt: now},
	}
	if leaseID != nil {
		s.Snapshot = ledger.NewSnapshot(spec.Snapshot, a.AgentDID, in.ID, a.Tenant.SnapshotNamespace())
	}
	return s
}

// sameLease refuses an acquire whose owner or settings differ from those of the live lease.
func sameLease(s *ledger.Sandbox, a sandbox.Acquire) error {
	if a.Owner != s.Owner {
		return sandbox.Errorf(sandbox.Conflict, "lease %s is held by %s: release it there, or wait until it ends",
			s.Lease(), s.Owner).WithReason(sandbox.ReasonOtherOwner)
	}
	var fields []sandbox.Field
	differs := func(name string, have, asked any) {
		if !reflect.DeepEqual(have, asked) {
			h, _ := json.Marshal(have)
			q, _ := json.Marshal(asked)
			fields = append(fields, sandbox.Field{
				Name:    "settings." + name,
				Problem: "is " + string(h) + " on the live lease, but the request has " + string(q),
			})
		}
	}
	differs("ttl", s.Settings.TTL, a.Settings.TTL)
	differs("sleep_after", s.Settings.SleepAfter, a.Settings.SleepAfter)
	differs("max_lifetime", s.Settings.MaxLifetime, a.Settings.MaxLifetime)
	if len(s.Settings.ExpiryConditions)+len(a.Settings.ExpiryConditions) > 0 {
		differs("expiry_conditions", s.Settings.ExpiryConditions, a.Settings.ExpiryConditions)
	}
	if len(s.Settings.Labels)+len(a.Settings.Labels) > 0 {
		differs("labels", s.Settings.Labels, a.Settings.Labels)
	}
	if fields == nil {
		return nil
	}
	return &sandbox.Error{Code: sandbox.Conflict, Reason: sandbox.ReasonOtherSettings, Fields: fields,
		Message: "lease " + s.Lease() + " has other settings: renew it with new ones, or release it first"}
}
