package api

import (
	"context"
	"io"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// scoped is the service as one token may use it: every call is checked against the token's
// environments, and what is made without an owner belongs to the token. It spells out every method,
// so that a new one does not compile before its scope is declared.
type scoped struct {
	service service.Service
	token   webhook.Token
}

var _ service.Service = scoped{}

// environment refuses an environment that the token may not touch; "" stands for all of them.
func (s scoped) environment(ctx context.Context, id string) error {
	exchangeOf(ctx).about("", id)
	switch {
	case s.token.Allows(id):
		return nil
	case id == "":
		return sandbox.Errorf(sandbox.Forbidden, "token %s may only touch the environments %s: name one of them with environment_id",
			s.token.Name, strings.Join(s.token.Environments, ", ")).WithReason(sandbox.ReasonEnvironmentNotAllowed)
	default:
		return sandbox.Errorf(sandbox.Forbidden, "token %s may not touch environment %s, only %s",
			s.token.Name, id, strings.Join(s.token.Environments, ", ")).WithReason(sandbox.ReasonEnvironmentNotAllowed)
	}
}

// everything refuses what concerns all environments to a token that is limited to some.
func (s scoped) everything(what string) error {
	if s.token.Allows("") {
		return nil
	}
	return sandbox.Errorf(sandbox.Forbidden, "token %s may only touch the environments %s: %s needs a token without that limit",
		s.token.Name, strings.Join(s.token.Environments, ", "), what).WithReason(sandbox.ReasonEnvironmentNotAllowed)
}

// lease refuses a lease in an environment that the token may not touch.
func (s scoped) lease(ctx context.Context, id string) error {
	exchangeOf(ctx).about(id, "")
	if len(s.token.Environments) == 0 {
		return nil
	}
	_, environment, err := sandbox.ParseLeaseID(id)
	if err != nil {
		return err
	}
	return s.environment(ctx, environment)
}

func (s scoped) owner(named string) string {
	if named != "" {
		return named
	}
	return s.token.Source()
}

func (s scoped) PutEnvironment(ctx context.Context, p sandbox.PutEnvironment) (sandbox.Environment, error) {
	if err := s.environment(ctx, p.ID); err != nil {
		return sandbox.Environment{}, err
	}
	p.Owner, p.Tenant = s.owner(p.Owner), s.token.Tenant()
	return s.service.PutEnvironment(ctx, p)
}

func (s scoped) GetEnvironment(ctx context.Context, id string) (sandbox.Environment, error) {
	if err := s.environment(ctx, id); err != nil {
		return sandbox.Environment{}, err
	}
	return s.service.GetEnvironment(ctx, id)
}

func (s scoped) ListEnvironments(ctx context.Context) ([]sandbox.Environment, error) {
	all, err := s.service.ListEnvironments(ctx)
	if err != nil {
		return nil, err
	}
	allowed := make([]sandbox.Environment, 0, len(all))
	for _, e := range all {
		if s.token.Allows(e.ID) {
			allowed = append(allowed, e)
		}
	}
	return allowed, nil
}

func (s scoped) ReopenEnvironment(ctx context.Context, id string) (sandbox.Environment, error) {
	if err := s.environment(ctx, id); err != nil {
		return sandbox.Environment{}, err
	}
	return s.service.ReopenEnvironment(ctx, id)
}

func (s scoped) DeleteEnvironment(ctx context.Context, d sandbox.DeleteEnvironment) error {
	if err := s.environment(ctx, d.ID); err != nil {
		return err
	}
	return s.service.DeleteEnvironment(ctx, d)
}

func (s scoped) Acquire(ctx context.Context, a sandbox.Acquire) (sandbox.Acquired, error) {
	if err := s.environment(ctx, a.EnvironmentID); err != nil {
		return sandbox.Acquired{}, err
	}
	a.Owner, a.Tenant = s.owner(a.Owner), s.token.Tenant()
	return s.service.Acquire(ctx, a)
}

// AcquireBatch refuses the whole batch for one environment that the token may not touch.
func (s scoped) AcquireBatch(ctx context.Context, b sandbox.AcquireBatch) ([]sandbox.AcquireResult, error) {
	for _, a := range b.Each() {
		if err := s.environment(ctx, a.EnvironmentID); err != nil {
			return nil, err
		}
	}
	b.Owner, b.Tenant = s.owner(b.Owner), s.token.Tenant()
	return s.service.AcquireBatch(ctx, b)
}

func (s scoped) GetLease(ctx context.Context, id string) (sandbox.Lease, error) {
	if err := s.lease(ctx, id); err != nil {
		return sandbox.Lease{}, err
	}
	return s.service.GetLease(ctx, id)
}

func (s scoped) ObserveLease(ctx context.Context, id string) (sandbox.Lease, error) {
	if err := s.lease(ctx, id); err != nil {
		return sandbox.Lease{}, err
	}
	return s.service.ObserveLease(ctx, id)
}

func (s scoped) ListLeases(ctx context.Context, f sandbox.LeaseFilter) ([]sandbox.Lease, error) {
	if err := s.environment(ctx, f.EnvironmentID); err != nil {
		return nil, err
	}
	return s.service.ListLeases(ctx, f)
}

func (s scoped) Renew(ctx context.Context, r sandbox.Renew) (sandbox.Lease, error) {
	if err := s.lease(ctx, r.ID); err != nil {
		return sandbox.Lease{}, err
	}
	return s.service.Renew(ctx, r)
}

func (s scoped) Release(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error) {
	if err := s.lease(ctx, r.ID); err != nil {
		return sandbox.Lease{}, err
	}
	return s.service.Release(ctx, r)
}

func (s scoped) Exec(ctx context.Context, r sandbox.LeaseRef, req sandbox.ExecRequest) (sandbox.ExecResult, error) {
	if err := s.lease(ctx, r.ID); err != nil {
		return sandbox.ExecResult{}, err
	}
	return s.service.Exec(ctx, r, req)
}

func (s scoped) StartExec(ctx context.Context, r sandbox.LeaseRef, req sandbox.ExecRequest) (sandbox.Exec, error) {
	if err := s.lease(ctx, r.ID); err != nil {
		return sandbox.Exec{}, err
	}
	return s.service.StartExec(ctx, r, req)
}

func (s scoped) GetExec(ctx context.Context, r sandbox.ExecRef) (sandbox.Exec, error) {
	if err := s.lease(ctx, r.LeaseID); err != nil {
		return sandbox.Exec{}, err
	}
	return s.service.GetExec(ctx, r)
}

func (s scoped) ListExecs(ctx context.Context, f sandbox.ExecFilter) ([]sandbox.Exec, error) {
	if err := s.lease(ctx, f.LeaseID); err != nil {
		return nil, err
	}
	return s.service.ListExecs(ctx, f)
}

func (s scoped) CancelExec(ctx context.Context, r sandbox.ExecRef) (sandbox.Exec, error) {
	if err := s.lease(ctx, r.LeaseID); err != nil {
		return sandbox.Exec{}, err
	}
	return s.service.CancelExec(ctx, r)
}

func (s scoped) ReadExec(ctx context.Context, o sandbox.OutputRequest) (io.ReadCloser, error) {
	if err := s.lease(ctx, o.LeaseID); err != nil {
		return nil, err
	}
	return s.service.ReadExec(ctx, o)
}

func (s scoped) Sleep(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error) {
	if err := s.lease(ctx, r.ID); err != nil {
		return sandbox.Lease{}, err
	}
	return s.service.Sleep(ctx, r)
}

func (s scoped) Wake(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error) {
	if err := s.lease(ctx, r.ID); err != nil {
		return sandbox.Lease{}, err
	}
	return s.service.Wake(ctx, r)
}

func (s scoped) LeaseUsage(ctx context.Context, r sandbox.LeaseRef) (sandbox.LeaseUsage, error) {
	if err := s.lease(ctx, r.ID); err != nil {
		return sandbox.LeaseUsage{}, err
	}
	return s.service.LeaseUsage(ctx, r)
}

func (s scoped) LeaseUsageHistory(ctx context.Context, q sandbox.UsageHistoryQuery) (sandbox.LeaseUsageHistory, error) {
	if err := s.lease(ctx, q.ID); err != nil {
		return sandbox.LeaseUsageHistory{}, err
	}
	return s.service.LeaseUsageHistory(ctx, q)
}

func (s scoped) LeaseHealth(ctx context.Context, r sandbox.LeaseRef) (sandbox.LeaseHealth, error) {
	if err := s.lease(ctx, r.ID); err != nil {
		return sandbox.LeaseHealth{}, err
	}
	return s.service.LeaseHealth(ctx, r)
}

func (s scoped) Run(ctx context.Context, r sandbox.RunRequest) (sandbox.RunResult, error) {
	if err := s.environment(ctx, r.EnvironmentID); err != nil {
		return sandbox.RunResult{}, err
	}
	r.Owner, r.Tenant = s.owner(r.Owner), s.token.Tenant()
	return s.service.Run(ctx, r)
}

func (s scoped) Deliver(ctx context.Context, d sandbox.Delivery) (sandbox.Receipt, error) {
	if err := s.environment(ctx, d.Condition.Data.EnvironmentID); err != nil {
		return sandbox.Receipt{}, err
	}
	return s.service.Deliver(ctx, d)
}

func (s scoped) ListStates(ctx context.Context, f sandbox.StateFilter) ([]sandbox.SavedState, error) {
	if err := s.environment(ctx, f.EnvironmentID); err != nil {
		return nil, err
	}
	return s.service.ListStates(ctx, f)
}

func (s scoped) DeleteState(ctx context.Context, key string) error {
	if err := s.everything("deleting a state"); err != nil {
		return err
	}
	return s.service.DeleteState(ctx, key)
}

func (s scoped) Ledger(ctx context.Context) (sandbox.LedgerInfo, error) {
	return s.service.Ledger(ctx) // an id, a version and prices: every token may know them
}

func (s scoped) ListEvents(ctx context.Context, f sandbox.EventFilter) ([]sandbox.Event, error) {
	if err := s.events(ctx, f); err != nil {
		return nil, err
	}
	return s.service.ListEvents(ctx, f)
}

func (s scoped) FollowEvents(ctx context.Context, f sandbox.EventFilter, yield func(sandbox.Event) error) error {
	if err := s.events(ctx, f); err != nil {
		return err
	}
	return s.service.FollowEvents(ctx, f, yield)
}

func (s scoped) events(ctx context.Context, f sandbox.EventFilter) error {
	if f.EnvironmentID == "" && f.LeaseID != "" {
		return s.lease(ctx, f.LeaseID)
	}
	return s.environment(ctx, f.EnvironmentID)
}

func (s scoped) Costs(ctx context.Context, q sandbox.CostQuery) (sandbox.CostReport, error) {
	if err := s.environment(ctx, q.EnvironmentID); err != nil {
		return sandbox.CostReport{}, err
	}
	report, err := s.service.Costs(ctx, q)
	if !s.token.Allows("") {
		report.Accounts = nil // they tell of all environments
	}
	return report, err
}

func (s scoped) Sweep(ctx context.Context, r sandbox.SweepRequest) (sandbox.SweepReport, error) {
	if err := s.everything("sweep"); err != nil {
		return sandbox.SweepReport{}, err
	}
	return s.service.Sweep(ctx, r)
}

func (s scoped) Adopt(ctx context.Context, r sandbox.AdoptRequest) (sandbox.AdoptReport, error) {
	if err := s.everything("adopt"); err != nil {
		return sandbox.AdoptReport{}, err
	}
	return s.service.Adopt(ctx, r)
}

func (s scoped) Audit(ctx context.Context, r sandbox.AuditRequest) (sandbox.AuditReport, error) {
	if err := s.environment(ctx, r.EnvironmentID); err != nil {
		return sandbox.AuditReport{}, err
	}
	return s.service.Audit(ctx, r)
}

func (s scoped) ListDeliveries(ctx context.Context, f sandbox.DeliveryFilter) ([]sandbox.StoredDelivery, error) {
	if err := s.environment(ctx, f.EnvironmentID); err != nil {
		return nil, err
	}
	return s.service.ListDeliveries(ctx, f)
}

func (s scoped) ListDrift(ctx context.Context, f sandbox.DriftFilter) ([]sandbox.DriftFinding, error) {
	if f.EnvironmentID == "" && f.LeaseID != "" {
		if err := s.lease(ctx, f.LeaseID); err != nil {
			return nil, err
		}
	} else if err := s.environment(ctx, f.EnvironmentID); err != nil {
		return nil, err
	}
	return s.service.ListDrift(ctx, f)
}
