package cloudflare

import (
	"context"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// place is where an environment is deployed, or is to be: by itself, or in the deployment that environments of its
// ledger share. Those of PolicyDurableObject share one. One that was made by itself stays so.
type place struct {
	// name is the deployment's.
	name   string
	shared bool
	// site is zero where nothing is deployed.
	site Site
	// environments are those that are deployed there.
	environments []Environment
	// unanswered is why a shared Worker did not tell its environments; nil where it did, or where there is none.
	unanswered error
}

// of returns what is deployed of an environment.
func (p place) of(id string) (Environment, bool) {
	i := slices.IndexFunc(p.environments, func(env Environment) bool { return env.ID == id })
	if i < 0 {
		return Environment{}, false
	}
	return p.environments[i], true
}

// locate returns where an environment is, or a shared place that lacks it. fresh asks Cloudflare; otherwise the list
// that sitesOf has may tell that a deployment is not there.
func (e *Executor) locate(ctx context.Context, ref driver.EnvironmentRef, fresh bool) (place, error) {
	listed, err := e.listed(ctx, ref.LedgerID)
	if err != nil {
		return place{}, err
	}
	shared := SharedName(ref.LedgerID)
	if fresh || listed[DeploymentName(ref.LedgerID, ref.EnvironmentID)] || !listed[shared] {
		if p, err := e.ownPlace(ctx, ref); err != nil || p.site.Name != "" {
			return p, err
		}
	}
	if fresh || listed[shared] {
		return e.sharedPlace(ctx, ref, fresh)
	}
	return place{name: shared, shared: true}, nil
}

// listed has the names of a ledger's deployments.
func (e *Executor) listed(ctx context.Context, ledgerID string) (map[string]bool, error) {
	all, err := e.sitesOf(ctx, ledgerID)
	names := make(map[string]bool, len(all))
	for _, s := range all {
		names[s.Name] = true
	}
	return names, err
}

// ownPlace returns the deployment of an environment by itself, as it is now.
func (e *Executor) ownPlace(ctx context.Context, ref driver.EnvironmentRef) (place, error) {
	name := DeploymentName(ref.LedgerID, ref.EnvironmentID)
	site, err := e.siteNamed(ctx, name)
	if err != nil || site.Name == "" {
		return place{name: name}, err
	}
	env := Environment{ID: ref.EnvironmentID, Image: imageOf(site), Prepared: site.Variables[variablePrepared]}
	return place{name: name, site: site, environments: []Environment{env}}, nil
}

// siteNamed finds a site, a zero one where there is none.
func (e *Executor) siteNamed(ctx context.Context, name string) (Site, error) {
	site, err := e.deployer.Find(ctx, name)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return Site{}, nil
	}
	return site, err
}

// sharedPlace returns the deployment that environments of a ledger share, as it is now, or was a moment ago.
func (e *Executor) sharedPlace(ctx context.Context, ref driver.EnvironmentRef, fresh bool) (place, error) {
	site, err := e.sharedSite(ctx, SharedName(ref.LedgerID), fresh)
	if err != nil {
		return place{}, err
	}
	return e.sharedAt(ctx, ref, site)
}

// sharedAt is sharedPlace where the site is known.
func (e *Executor) sharedAt(ctx context.Context, ref driver.EnvironmentRef, site Site) (place, error) {
	p := place{name: SharedName(ref.LedgerID), shared: true, site: site}
	if site.URL == "" {
		return p, nil
	}
	w, err := e.sharedLine(site)
	if err != nil {
		return p, err
	}
	p.environments, p.unanswered = environmentsOf(ctx, w, ref)
	return p, nil
}

// environmentsOf returns the environments that share a Worker, those left out that were removed.
func environmentsOf(ctx context.Context, w *Worker, ref driver.EnvironmentRef) ([]Environment, error) {
	all, _, err := w.Environments(ctx, ref.Instance, ref.LedgerID)
	return slices.DeleteFunc(all, func(env Environment) bool { return env.RemovedAt != 0 }), err
}

// sharedSiteHolds is for how long a shared site is taken to be as it was: a plan looks at all environments at once.
const sharedSiteHolds = 10 * time.Second

// seenSite is a shared site as it was found.
type seenSite struct {
	Site
	at       time.Time
	deployed int // Executor.deployed at that time
}

func (e *Executor) sharedSite(ctx context.Context, name string, fresh bool) (Site, error) {
	e.mu.Lock()
	seen, deployed := e.shared[name], e.deployed
	e.mu.Unlock()
	now := e.cfg.Now()
	if !fresh && seen.deployed == deployed && now.Before(seen.at.Add(sharedSiteHolds)) {
		return seen.Site, nil
	}
	site, err := e.siteNamed(ctx, name)
	if err == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.shared[name] = seenSite{site, now, deployed}
	}
	return site, err
}

// placeFor is where an environment is, or is to be made: what shares a deployment has PolicyDurableObject.
func (e *Executor) placeFor(ctx context.Context, ref driver.EnvironmentRef, size sandbox.Resources) (place, error) {
	own, err := e.ownPlace(ctx, ref)
	if err != nil || own.site.Name != "" {
		return own, err
	}
	shares := e.configuredPolicy(size) == PolicyDurableObject
	if !shares {
		listed, err := e.listed(ctx, ref.LedgerID)
		if err != nil || !listed[SharedName(ref.LedgerID)] {
			return own, err
		}
	}
	p, err := e.sharedPlace(ctx, ref, false)
	_, has := p.of(ref.EnvironmentID)
	switch {
	case err != nil, shares, has:
		return p, err
	case p.unanswered != nil:
		return p, sandbox.Errorf(sandbox.Unavailable, "cloudflare: environment %s: whether it shares deployment %s "+
			"is unknown: %w (repeat it)", ref.EnvironmentID, p.name, p.unanswered)
	}
	return own, nil
}

// policyAt is the policy of an environment in its place: the one that it was made with, else the configured one.
func (e *Executor) policyAt(p place, size sandbox.Resources) SchedulingPolicy {
	switch {
	case p.shared:
		return PolicyDurableObject
	case p.site.Policy != "":
		return p.site.Policy
	}
	return e.configuredPolicy(size)
}

// lineTo returns the line to a place's Worker.
func (e *Executor) lineTo(p place) (*Worker, error) {
	if p.shared {
		return e.sharedLine(p.site)
	}
	return e.line(p.site)
}

// sharedLine returns the one line to a shared Worker: the sessions of all its environments are on it.
func (e *Executor) sharedLine(s Site) (*Worker, error) {
	w, err := e.line(s)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := e.lines[s.Name]
	if kept != nil && kept.base == w.base {
		return kept, nil
	}
	if kept != nil {
		e.former = append(e.former, &deployed{Worker: kept})
	}
	e.lines[s.Name] = w
	return w, nil
}
