package cloudflare

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Spawn implements driver.Lifecycle. The sandbox must have the image that its environment is deployed with. Under
// PolicyDurableObject the sandbox keeps that image, and its size, when its environment gets others.
func (e *Executor) Spawn(ctx context.Context, spec driver.SandboxSpec) error {
	d, err := e.find(ctx, spec.LedgerID, spec.EnvironmentID, spec.Instance)
	if err == nil && d.image != spec.Image { // it may have been deployed by another process since
		e.forget(DeploymentName(spec.LedgerID, spec.EnvironmentID))
		d, err = e.find(ctx, spec.LedgerID, spec.EnvironmentID, spec.Instance)
	}
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		return sandbox.Errorf(sandbox.Failed,
			"cloudflare: sandbox %s: its environment is not deployed: %w (provision it again)", spec.SandboxID, err).
			WithReason(sandbox.ReasonCreationFailed)
	case err != nil:
		return err
	case d.image != spec.Image:
		return sandbox.Errorf(sandbox.NotFound,
			"cloudflare: sandbox %s: its environment is deployed with image %s, not with %s (provision it again)",
			spec.SandboxID, d.image, spec.Image).
			WithReason(sandbox.ReasonImageNotFound)
	}
	var choice *Choice
	if d.prepared != "" {
		if choice, err = choose(d.prepared, spec.Resources); err != nil {
			return err
		}
	}
	return d.SpawnChosen(ctx, spec, e.limits(spec.Limits), choice)
}

// limits returns the Worker's limits for those of a lease.
func (e *Executor) limits(of driver.Limits) Limits {
	return Limits{TTL: e.withGrace(of.TTL), SleepAfter: e.withGrace(of.SleepAfter)}
}

func (e *Executor) withGrace(d sandbox.Duration) time.Duration {
	if d == 0 { // never
		return 0
	}
	return d.D() + e.cfg.Grace
}

// Touch implements driver.Lifecycle.
func (e *Executor) Touch(ctx context.Context, h driver.Handle, l driver.Limits) (driver.Observation, error) {
	w, err := e.worker(ctx, h)
	if err != nil {
		return driver.Observation{}, err
	}
	s, err := w.Touch(ctx, h, l, e.limits(l))
	if err != nil {
		return driver.Observation{}, err
	}
	return observation(h, s), nil
}

// Sleep implements driver.Lifecycle: it stops the container in every mode.
func (e *Executor) Sleep(ctx context.Context, h driver.Handle, _ sandbox.SleepMode) error {
	w, err := e.worker(ctx, h)
	if err != nil {
		return err
	}
	return w.Sleep(ctx, h)
}

// Assign implements driver.Lifecycle: no sandbox here was made for a warm pool. Errors: Conflict,
// Unavailable, NotFound.
func (e *Executor) Assign(ctx context.Context, spec driver.SandboxSpec) error {
	if _, err := e.Inspect(ctx, spec.Handle); err != nil {
		return err
	}
	return sandbox.Errorf(sandbox.Conflict, "cloudflare: sandbox %s: %w", spec.SandboxID, errNotAssigned).
		WithReason(sandbox.ReasonInvalidState)
}

// Wake implements driver.Lifecycle. started is always false, because Boots reports starts.
func (e *Executor) Wake(ctx context.Context, h driver.Handle) (started bool, err error) {
	w, err := e.worker(ctx, h)
	if err != nil {
		return false, err
	}
	return false, w.Wake(ctx, h)
}

// Kill implements driver.Lifecycle. The sandboxes of a deleted deployment are gone with it.
func (e *Executor) Kill(ctx context.Context, h driver.Handle) error {
	w, err := e.worker(ctx, h)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	return w.Kill(ctx, h)
}

// Export implements driver.Exporter: it reads the saved object, which it saves first if the sandbox is awake. So the
// sandbox is not frozen during the read, and the content is consistent.
func (e *Executor) Export(ctx context.Context, h driver.Handle) (io.ReadCloser, error) {
	w, err := e.worker(ctx, h)
	if err != nil {
		return nil, err
	}
	return w.Export(ctx, h)
}

// Inspect implements driver.Observer.
func (e *Executor) Inspect(ctx context.Context, h driver.Handle) (driver.Observation, error) {
	w, err := e.worker(ctx, h)
	if err != nil {
		return driver.Observation{}, err
	}
	s, err := w.Inspect(ctx, h)
	if err != nil {
		return driver.Observation{}, err
	}
	return observation(h, s), nil
}

func observation(h driver.Handle, s SandboxStatus) driver.Observation {
	return driver.Observation{
		Handle: h, LeaseID: s.LeaseID, AgentDID: s.AgentDID, Generation: s.Generation, Deadline: s.Deadline,
		State: s.State, Image: s.Image, Resources: s.Resources, ExitCode: s.Period.ExitCode,
		CreatedAt: s.CreatedAt, StartedAt: s.Period.StartedAt, StoppedAt: s.Period.StoppedAt, Boot: s.Period.Boot,
		Rest: rests[s.Period.Cause], Reading: s.Period.Reading, Disk: s.Disk,
	}
}

// rests maps the causes of a rest to its reasons.
var rests = map[Cause]sandbox.StopReason{
	CauseIdle:  sandbox.StopIdle,
	CauseTTL:   sandbox.StopIdle,
	CauseSleep: sandbox.StopRequest,
}

// Usage implements driver.Observer.
func (e *Executor) Usage(ctx context.Context, h driver.Handle) (driver.Usage, error) {
	w, err := e.worker(ctx, h)
	if err != nil {
		return driver.Usage{}, err
	}
	return w.Usage(ctx, h)
}

// Boots implements driver.Observer: they are the periods that the Worker recorded.
func (e *Executor) Boots(ctx context.Context, h driver.Handle) ([]driver.Boot, error) {
	w, err := e.worker(ctx, h)
	if err != nil {
		return nil, err
	}
	periods, err := w.Periods(ctx, h)
	if err != nil {
		return nil, err
	}
	if len(periods) == 0 {
		return nil, sandbox.Errorf(sandbox.NotFound, "cloudflare: sandbox %s never ran, or its records are deleted",
			h.SandboxID).WithReason(sandbox.ReasonSandboxNotFound)
	}
	all := make([]driver.Boot, 0, len(periods))
	for _, p := range periods {
		all = append(all, driver.Boot{
			Number: p.Boot, StartedAt: p.StartedAt, StoppedAt: p.StoppedAt, CPUTime: p.CPUTime, Size: p.Size,
		})
	}
	return all, nil
}

// listers bounds the Workers that are asked for their sandboxes at the same time.
const listers = 16

// List implements driver.Observer: it asks the Worker of each of the ledger's deployments. A Worker that fails does not
// hide the others.
func (e *Executor) List(ctx context.Context, ledgerID string) ([]driver.Observation, error) {
	sites, err := e.sitesOf(ctx, ledgerID)
	if err != nil {
		return nil, err
	}
	return e.listSites(ctx, ledgerID, sites)
}

// ListEnvironment implements driver.Observer: it asks the Worker of the environment's deployment, which may be shared.
func (e *Executor) ListEnvironment(ctx context.Context, ref driver.EnvironmentRef) ([]driver.Observation, error) {
	sites, err := e.sitesOf(ctx, ref.LedgerID)
	if err != nil {
		return nil, err
	}
	own, shared := DeploymentName(ref.LedgerID, ref.EnvironmentID), SharedName(ref.LedgerID)
	sites = slices.DeleteFunc(slices.Clone(sites), func(s Site) bool { return s.Name != own && s.Name != shared })
	list, err := e.listSites(ctx, ref.LedgerID, sites)
	list = slices.DeleteFunc(list, func(o driver.Observation) bool { return o.EnvironmentID != ref.EnvironmentID })
	return list, err
}

func (e *Executor) listSites(ctx context.Context, ledgerID string, sites []Site) ([]driver.Observation, error) {
	instance, err := e.Instance(ctx)
	if err != nil {
		return nil, err
	}
	lists := make([][]driver.Observation, len(sites))
	errs := make([]error, len(sites))
	var group errgroup.Group
	group.SetLimit(listers)
	for i, s := range sites {
		if s.URL == "" { // no request ever reached it
			continue
		}
		group.Go(func() error {
			lists[i], errs[i] = e.listOne(ctx, s, instance, ledgerID)
			return nil // the error is reported with the others
		})
	}
	_ = group.Wait() // errs has all errors
	missing := map[string]error{}
	for i, err := range errs {
		if err != nil {
			missing[sites[i].Name] = err
		}
	}
	if ctx.Err() != nil {
		return nil, unavailable(ctx.Err())
	}
	e.silent(ledgerID, slices.Collect(maps.Keys(missing)))
	all := slices.Concat(lists...)
	if len(missing) == 0 {
		return all, nil
	}
	return all, &sandbox.PartialError{Missing: missing, NameOf: func(id string) string {
		own := DeploymentName(ledgerID, id)
		if slices.ContainsFunc(sites, func(s Site) bool { return s.Name == own }) {
			return own
		}
		return SharedName(ledgerID)
	}}
}

func (e *Executor) listOne(ctx context.Context, s Site, instance, ledgerID string) ([]driver.Observation, error) {
	w, err := e.line(s)
	if err != nil {
		return nil, err
	}
	list, err := w.List(ctx, instance, ledgerID)
	if err != nil {
		return nil, err
	}
	all := make([]driver.Observation, 0, len(list))
	for _, l := range list {
		h := driver.Handle{LedgerID: ledgerID, EnvironmentID: l.EnvironmentID, SandboxID: l.SandboxID, Instance: instance}
		all = append(all, observation(h, l.SandboxStatus))
	}
	return all, nil
}

// Watch implements driver.Observer by polling: Cloudflare sends no events.
func (e *Executor) Watch(ctx context.Context, ledgerID string, ready func(), changed func(sandboxID string)) error {
	before, err := e.look(ctx, ledgerID, nil)
	if err != nil {
		return err
	}
	ready()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(e.cfg.Poll):
		}
		now, err := e.look(ctx, ledgerID, before)
		if err != nil {
			return err
		}
		for id, seen := range now {
			if before[id] != seen {
				changed(id)
			}
		}
		for id := range before {
			if _, there := now[id]; !there {
				changed(id)
			}
		}
		before = now
	}
}

// seen is what Watch compares to find changes. A restart also changes it.
type seen struct {
	environment string
	state       sandbox.State
	startedAt   time.Time
}

// look lists the sandboxes. For an environment that does not answer, it returns the previous ones.
func (e *Executor) look(ctx context.Context, ledgerID string, before map[string]seen) (map[string]seen, error) {
	list, err := e.List(ctx, ledgerID)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var partial *sandbox.PartialError
	if err != nil && !errors.As(err, &partial) {
		return nil, err
	}
	all := make(map[string]seen, len(list))
	for id, was := range before {
		if partial != nil && partial.Of(was.environment) != nil {
			all[id] = was
		}
	}
	for _, o := range list {
		all[o.SandboxID] = seen{o.EnvironmentID, o.State, o.StartedAt}
	}
	return all, nil
}

// Dependents implements driver.Cleaner. There are none: beside its container a sandbox has only its Durable Object,
// and Deprovision removes what an environment has.
func (e *Executor) Dependents(context.Context, string) ([]driver.Dependent, error) { return nil, nil }

// RemoveDependent implements driver.Cleaner: there are none.
func (e *Executor) RemoveDependent(ctx context.Context, l driver.Dependent) error {
	return e.confirm(ctx, l.Instance)
}

// Audit implements driver.Auditor. It checks deadlines only, because Cloudflare's isolation of containers cannot be
// inspected.
func (e *Executor) Audit(ctx context.Context, ledgerID string) ([]sandbox.AuditCheck, error) {
	list, err := e.List(ctx, ledgerID)
	if err != nil {
		return nil, err
	}
	now := e.cfg.Now()
	checks := make([]sandbox.AuditCheck, 0, len(list))
	for _, o := range list {
		c := sandbox.AuditCheck{
			Object: o.SandboxID, SandboxID: o.SandboxID, LeaseID: o.LeaseID, EnvironmentID: o.EnvironmentID,
			Rule: "CF.1", Title: "no sandbox runs past its deadline", Verdict: sandbox.VerdictPass,
		}
		if o.State == sandbox.StateRunning && now.After(o.Deadline.Add(time.Minute)) {
			c.Verdict, c.Detail = sandbox.VerdictFinding, "its deadline was "+o.Deadline.Format(time.RFC3339)
		}
		checks = append(checks, c)
	}
	return checks, nil
}
