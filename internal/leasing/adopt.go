package leasing

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/environments"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/drift"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/warmpool"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Adopt implements service.Maintenance. It adopts each sandbox on its own, and checks it in the transaction that makes
// its row. Once all sandboxes are adopted, the instances are the ledger's own, regardless of their witness.
func (v *Service) Adopt(ctx context.Context, r sandbox.AdoptRequest) (sandbox.AdoptReport, error) {
	if err := r.Validate(); err != nil {
		return sandbox.AdoptReport{}, err
	}
	r.LedgerID = cmp.Or(r.LedgerID, v.store.ID())
	report := sandbox.AdoptReport{LedgerID: r.LedgerID, DryRun: r.DryRun, Sandboxes: []sandbox.Adoption{}}
	backends := v.Backends()
	slices.Sort(backends)
	var found []adoptionCandidate
	for _, b := range backends {
		more, err := v.adoptionCandidates(ctx, b, r)
		if err != nil {
			return sandbox.AdoptReport{}, lifecycle.AsError(fmt.Errorf("adopt: %w", err))
		}
		found = append(found, more...)
	}
	for _, c := range found {
		known, err := c.adopt(ctx)
		if err != nil {
			return report, lifecycle.AsError(fmt.Errorf("adopt sandbox %s of environment %s: %w",
				c.seen.SandboxID, c.seen.EnvironmentID, err))
		}
		if !known {
			report.Sandboxes = append(report.Sandboxes, c.report())
		}
	}
	if r.DryRun || r.EnvironmentID != "" || r.LedgerID != v.store.ID() {
		return report, nil
	}
	for _, b := range backends {
		x, err := v.BackendFor(b)
		if err == nil {
			err = x.Accept(ctx)
		}
		if err != nil {
			return report, lifecycle.AsError(fmt.Errorf("adopt: %w", err))
		}
	}
	return report, nil
}

// adoptionCandidate is a sandbox on a backend that may be adopted.
type adoptionCandidate struct {
	service  *Service
	request  sandbox.AdoptRequest
	x        *lifecycle.Backend
	instance string
	seen     driver.Observation
	used     *driver.Usage // before this ledger pays for it; nil: unknown
	why      string        // why it was not adopted
}

// adoptionCandidates lists the sandboxes that a backend's instance has under the label. Of several generations of a
// lease, the newest comes first. If all are to end, the oldest comes first, so that each can be recorded.
func (v *Service) adoptionCandidates(ctx context.Context, b sandbox.Backend,
	r sandbox.AdoptRequest) ([]adoptionCandidate, error) {
	x, err := v.BackendFor(b)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, lifecycle.KillTimeout)
	defer cancel()
	instance, err := x.Executor.Instance(bounded) // even if it is not recognized
	if err != nil {
		return nil, err
	}
	listed, err := x.List(bounded, r.LedgerID)
	if err != nil {
		return nil, err
	}
	var found []adoptionCandidate
	for _, o := range listed {
		if o.Instance == instance && (r.EnvironmentID == "" || o.EnvironmentID == r.EnvironmentID) {
			found = append(found, adoptionCandidate{service: v, request: r, x: x, instance: instance, seen: o})
		}
	}
	slices.SortFunc(found, func(a, b adoptionCandidate) int {
		newer := cmp.Compare(b.seen.Generation, a.seen.Generation)
		if r.End {
			newer = -newer
		}
		return cmp.Or(cmp.Compare(a.seen.LeaseID, b.seen.LeaseID), newer, cmp.Compare(a.seen.SandboxID, b.seen.SandboxID))
	})
	return found, nil
}

// adopt makes a row for the sandbox, or sets why to the reason against it. It reports whether the ledger already has
// the sandbox.
func (c *adoptionCandidate) adopt(ctx context.Context) (known bool, err error) {
	running := c.seen.State == sandbox.StateRunning || c.seen.State == sandbox.StatePaused
	if running && !c.request.DryRun {
		used, err := lifecycle.Sample(ctx, c.x, c.seen.Handle)
		if err == nil {
			c.used = &used
		} else {
			c.service.log.DebugContext(ctx, "leasing: sampling usage", "sandbox", c.seen.SandboxID, "error", err)
		}
	}
	run := c.service.store.Write
	if c.request.DryRun {
		run = c.service.store.Read
	}
	err = run(ctx, func(tx *ledger.Tx) error {
		known = false
		row, err := tx.Sandbox(c.seen.SandboxID)
		if err != nil {
			return err
		}
		if known = row != nil && row.Phase != sandbox.PhaseGone; known {
			return nil
		}
		if row != nil {
			c.why = "the ledger records it as destroyed: a resync removes it"
			return nil
		}
		s, l, err := c.newRow(tx)
		if err != nil || c.why != "" || c.request.DryRun {
			return err
		}
		return c.take(tx, s, l)
	})
	return known, err
}

// newRow returns the row for the sandbox, and the row of its lease, nil for a new lease. If the sandbox cannot be
// adopted, it sets why.
func (c *adoptionCandidate) newRow(tx *ledger.Tx) (*ledger.Sandbox, *ledger.Lease, error) {
	o := c.seen
	env, err := tx.Environment(o.EnvironmentID)
	if err != nil {
		return nil, nil, err
	}
	if c.why = c.refusal(env); c.why != "" {
		return nil, nil, nil
	}
	l, err := tx.Lease(o.LeaseID)
	if err != nil {
		return nil, nil, err
	}
	if l != nil {
		current, held, err := lifecycle.CurrentOf(tx, l.ID)
		switch {
		case err != nil:
			return nil, nil, err
		case current.Live(held, tx.Now):
			c.why = fmt.Sprintf("its lease is live in generation %d, in sandbox %s: release that first", l.Generation,
				current.ID)
		case o.Generation <= l.Generation:
			c.why = fmt.Sprintf("it is generation %d of its lease, and this ledger has given out generation %d: "+
				"remove it by hand", o.Generation, l.Generation)
		}
	}
	return c.row(tx.Now, env), l, nil
}

// fromPool reports whether the sandbox was created for a warm pool: its labels name no lease, even if it has one by
// now.
func (c *adoptionCandidate) fromPool() bool {
	return c.seen.LeaseID == "" && c.seen.AgentDID == "" && c.seen.Generation == 0
}

// refusal says why a sandbox cannot be adopted into an environment, "" if it can.
func (c *adoptionCandidate) refusal(env *ledger.Environment) string {
	o := c.seen
	switch {
	case !c.fromPool() &&
		(o.AgentDID == "" || o.Generation <= 0 || o.LeaseID != sandbox.LeaseID(o.AgentDID, o.EnvironmentID)):
		return "its labels name no lease: remove it by hand"
	case env == nil || env.Status == sandbox.EnvironmentDestroyed || env.Status == sandbox.EnvironmentDeleting:
		return fmt.Sprintf("there is no environment %s on this ledger: create it first", o.EnvironmentID)
	case env.Instance != c.instance:
		return fmt.Sprintf("environment %s is on instance %s", env.ID, env.Instance)
	case o.State == sandbox.StateRemoving:
		return "it is being removed"
	case o.Hangs:
		return "its backend does not answer about it: try again"
	case c.request.End:
		return ""
	case c.fromPool():
		return "it was made for a warm pool, and whether a lease has had it since is not known: adopt it with " +
			"end, which destroys it"
	case o.State != sandbox.StateRunning && o.State != sandbox.StatePaused && env.Spec.SleepMode != sandbox.SleepStop:
		return fmt.Sprintf("it is %s, and its processes are lost: adopt it with end, which destroys it", o.State)
	case !c.request.DryRun && c.used == nil && o.State == sandbox.StateRunning && c.x.Capabilities().CPUTime:
		return "its CPU time so far could not be read: try again"
	}
	if err := environments.MayLease(env, env.Spec); err != nil {
		return err.Error()
	}
	return ""
}

// row returns the row of the sandbox in its observed state. Its lifetime ends at its original deadline.
func (c *adoptionCandidate) row(now micro.Time, env *ledger.Environment) *ledger.Sandbox {
	o := c.seen
	lease, owner := &o.LeaseID, env.Owner
	if c.fromPool() {
		lease, owner = nil, warmpool.Owner
	}
	// The token that leased it is unknown, so its snapshot is restored in its environment only.
	tenant := &sandbox.Tenant{Environments: []string{env.ID}}
	s := c.service.newSandbox(now, env, env.Spec,
		sandbox.Acquire{AgentDID: o.AgentDID, EnvironmentID: env.ID, Owner: owner, Tenant: tenant}, lease, o.Generation)
	s.ID, s.Container = o.SandboxID, s.Container.Found(o)
	if made := micro.At(o.CreatedAt); made > 0 && made < now {
		s.LeasedAt = made
	}
	s.Origin = c.origin(s.LeasedAt)
	if end := s.Origin.HardDeadline; end > 0 {
		s.MaxLifetime = min(s.MaxLifetime, micro.Span(end-s.LeasedAt))
	}
	s.ReadyAt, s.ObservedAt = now, now
	s.Meter = ledger.Meter{Boot: o.Boot}
	if c.used != nil {
		s.Meter.CPUMark = micro.SpanOf(c.used.CPUTime)
	}
	return s
}

// origin returns the origin of the sandbox. made is the time of its creation.
func (c *adoptionCandidate) origin(made micro.Time) ledger.Origin {
	origin := ledger.Origin{HardDeadline: micro.At(c.seen.Deadline)}
	if c.seen.LedgerID != c.service.store.ID() {
		origin.LedgerID = c.seen.LedgerID
	}
	if c.fromPool() {
		origin.PooledAt = made
	}
	return origin
}

// take stores the row. Usage counts from now on.
func (c *adoptionCandidate) take(tx *ledger.Tx, s *ledger.Sandbox, l *ledger.Lease) error {
	phase := sandbox.PhaseAsleep
	if c.seen.State == sandbox.StateRunning {
		phase = sandbox.PhaseAwake
	}
	s.Status = ledger.Status{State: lifecycle.StandsAs(c.seen.State), Since: tx.Now}
	if phase == sandbox.PhaseAsleep {
		s.Status.StopReason = sandbox.StopOutside
	}
	if err := c.service.snapshots.Adopt(tx, s); err != nil {
		return err
	}
	if err := tx.CreateSandbox(s); err != nil { // usage refers to the sandbox
		return err
	}
	data := map[string]any{
		"owner":      s.Owner,
		"generation": s.Generation,
		"ledger_id":  c.seen.LedgerID,
		"state":      c.seen.State,
	}
	err := tx.UpdateRow(s, func(s *ledger.Sandbox) error {
		if err := c.service.EnterPhase(tx, s, phase, tx.Now, sandbox.EventAdopted, data); err != nil || !c.request.End {
			return err
		}
		return c.service.End(tx, s,
			lifecycle.Ending{By: sandbox.EndedByAdmin, Reason: "it was adopted to be destroyed", At: tx.Now})
	})
	if err != nil {
		return err
	}
	if err := drift.In(tx).ResolveAll(s.ID, "adopted: the ledger has it now"); err != nil || c.fromPool() {
		return err
	}
	return tx.BeginGeneration(l, s)
}

func (c *adoptionCandidate) report() sandbox.Adoption {
	o := c.seen
	return sandbox.Adoption{
		SandboxID: o.SandboxID, LeaseID: o.LeaseID, EnvironmentID: o.EnvironmentID, Generation: o.Generation,
		Backend: c.x.Backend(), Instance: o.Instance, State: o.State, CreatedAt: o.CreatedAt, Deadline: o.Deadline,
		Adopted: c.why == "", Why: c.why,
	}
}
