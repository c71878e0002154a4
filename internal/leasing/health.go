package leasing

import (
	"context"
	"fmt"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// healthLimit is how long a sandbox or its backend may take to answer.
const healthLimit = 10 * time.Second

// LeaseUsage implements service.Health.
func (v *Service) LeaseUsage(ctx context.Context, r sandbox.LeaseRef) (sandbox.LeaseUsage, error) {
	s, lease, err := v.watched(ctx, r)
	if err != nil {
		return sandbox.LeaseUsage{}, err
	}
	switch {
	case lease.Status == sandbox.LeasePending:
		return sandbox.LeaseUsage{}, sandbox.Errorf(sandbox.Conflict,
			"lease %s: its sandbox is still being created: ask again", r.ID).WithReason(sandbox.ReasonInvalidState)
	case lease.Status != sandbox.LeaseActive:
		return sandbox.LeaseUsage{}, sandbox.Errorf(sandbox.LeaseEnded, "lease %s has ended: acquire it again", r.ID)
	}
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	x, h, err := v.On(s)
	if err != nil {
		return sandbox.LeaseUsage{}, err
	}
	o, err := x.Inspect(ctx, h)
	if err != nil {
		return sandbox.LeaseUsage{}, lifecycle.AsError(err)
	}
	usage := sandbox.LeaseUsage{
		LeaseID:    lease.ID,
		Generation: lease.Generation,
		SandboxID:  lease.SandboxID,
		State:      o.State,
		Limits:     lease.Resources,
		SampledAt:  v.now(),
	}
	if o.State == sandbox.StateRunning || o.State == sandbox.StatePaused {
		used, err := x.Usage(ctx, h)
		if err != nil {
			return sandbox.LeaseUsage{}, lifecycle.AsError(err)
		}
		usage.CPUTime, usage.MemoryBytes, usage.PIDs = sandbox.Duration(used.CPUTime), used.MemoryBytes, used.PIDs
		if usage.CPUPercent, err = v.cpuPercent(ctx, usage); err != nil {
			return sandbox.LeaseUsage{}, err
		}
	}
	if o.State == sandbox.StateRunning {
		disk, err := x.DiskUsage(ctx, h)
		switch {
		case err == nil:
			usage.Disk = &disk
		case sandbox.ReasonOf(err) != sandbox.ReasonInvalidState: // otherwise it has gone to sleep meanwhile
			return sandbox.LeaseUsage{}, lifecycle.AsError(err)
		}
	}
	return usage, nil
}

// cpuPercent returns the mean CPU use since the last sample of the history, nil without such a sample.
func (v *Service) cpuPercent(ctx context.Context, u sandbox.LeaseUsage) (percent *float64, err error) {
	err = v.store.Read(ctx, func(tx *ledger.Tx) error {
		rows, err := accounting.In(tx).UsageSamples(u.SandboxID, micro.At(u.SampledAt.Add(-sandbox.MaxUsageGap)),
			micro.At(u.SampledAt))
		if err != nil || len(rows) == 0 {
			return err
		}
		now := sandbox.UsageSample{At: u.SampledAt, CPUTime: u.CPUTime}.Since(rows[len(rows)-1].Domain())
		if now.CPUMillis != nil {
			tenth := float64(*now.CPUMillis) / 10
			percent = &tenth
		}
		return nil
	})
	return percent, err
}

// LeaseUsageHistory implements service.Health.
func (v *Service) LeaseUsageHistory(ctx context.Context,
	q sandbox.UsageHistoryQuery) (sandbox.LeaseUsageHistory, error) {
	if err := q.Validate(); err != nil {
		return sandbox.LeaseUsageHistory{}, err
	}
	_, lease, err := v.watched(ctx, q.LeaseRef)
	if err != nil {
		return sandbox.LeaseUsageHistory{}, err
	}
	h := sandbox.LeaseUsageHistory{
		LeaseID:    lease.ID,
		Generation: lease.Generation,
		SandboxID:  lease.SandboxID,
		Limits:     lease.Resources,
	}
	var rows []accounting.UsageSample
	err = v.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		to := tx.Now + 1
		if !q.To.IsZero() {
			to = micro.At(q.To)
		}
		// The mean up to the first sample needs the one before it.
		rows, err = accounting.In(tx).UsageSamples(lease.SandboxID, micro.At(q.From.Add(-sandbox.MaxUsageGap)), to)
		return err
	})
	var before sandbox.UsageSample
	for i := range rows {
		s := rows[i].Domain()
		if !s.At.Before(q.From) {
			h.Samples = append(h.Samples, s.Since(before))
		}
		before = s
	}
	return h, err
}

// LeaseHealth implements service.Health.
func (v *Service) LeaseHealth(ctx context.Context, r sandbox.LeaseRef) (sandbox.LeaseHealth, error) {
	s, lease, err := v.watched(ctx, r)
	if err != nil {
		return sandbox.LeaseHealth{}, err
	}
	health := sandbox.LeaseHealth{
		LeaseID:    lease.ID,
		Generation: lease.Generation,
		SandboxID:  lease.SandboxID,
		Status:     lease.Status,
		Phase:      lease.Phase,
		CheckedAt:  v.now(),
	}
	switch lease.Status {
	case sandbox.LeasePending:
		health.Problem = "the sandbox is being created"
	case sandbox.LeaseActive:
		v.examine(ctx, s, &health)
	default:
		health.Problem = fmt.Sprintf("the lease has ended by %s: %s", lease.EndedBy, lease.EndReason)
	}
	health.Healthy = health.Problem == ""
	return health, nil
}

// watched reads a lease without changing anything.
func (v *Service) watched(ctx context.Context, r sandbox.LeaseRef) (s *ledger.Sandbox, lease sandbox.Lease, err error) {
	err = v.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		if s, _, err = lifecycle.CurrentOf(tx, r.ID); err != nil {
			return err
		}
		if err := lifecycle.CheckRef(s, r); err != nil {
			return err
		}
		lease, err = v.view(tx, s)
		return err
	})
	return s, lease, err
}

// examine asks the backend and, if the sandbox should run, the programs in it.
func (v *Service) examine(ctx context.Context, s *ledger.Sandbox, health *sandbox.LeaseHealth) {
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	x, h, err := v.On(s)
	if err != nil {
		health.Problem = err.Error()
		return
	}
	o, err := x.Inspect(ctx, h)
	health.BackendReachable = err == nil || sandbox.CodeOf(err) == sandbox.NotFound
	health.State = o.State
	switch {
	case err != nil:
		health.Problem = err.Error()
	case o.State == sandbox.StateRunning:
		// StatFile starts a helper next to process 1.
		_, err := x.StatFile(ctx, h, "/workspace")
		if err != nil && sandbox.ReasonOf(err) != sandbox.ReasonInvalidState { // otherwise it has gone to sleep meanwhile
			health.Problem = "the sandbox runs and does not answer: " + err.Error()
		}
	case s.Phase == sandbox.PhaseAwake:
		health.Problem = fmt.Sprintf("the sandbox should be awake, and is %s on its backend", o.State)
	}
}
