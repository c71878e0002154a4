package cloudflare

import (
	"context"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// place is where an environment is deployed, or will be: in a deployment of its own, or in the one that environments of
// its ledger share. Environments of PolicyDurableObject share one. An environment that was created with its own
// deployment keeps it.
type place struct {
	// name is the deployment's.
	name   string
	shared bool
	// site is zero if nothing is deployed.
	site Site
	// environments are the environments that are deployed there.
	environments []Environment
	// unanswered is why a shared Worker did not list its environments; nil if it did, or if there is no Worker.
	unanswered error
}

// of returns the environment with this id, if it is deployed there.
func (p place) of(id string) (Environment, bool) {
	i := slices.IndexFunc(p.environments, func(env Environment) bool { return env.ID == id })
	if i < 0 {
		return Environment{}, false
	}
	return p.environments[i], true
}

// locate returns the place of an environment, or a shared place that lacks it. If fresh, it asks Cloudflare; otherwise
// the cached list of sitesOf may decide that a deployment does not exist.
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

// listed returns the names of a ledger's deployments.
func (e *Executor) listed(ctx context.Context, ledgerID string) (map[string]bool, error) {
	all, err := e.sitesOf(ctx, ledgerID)
	names := make(map[string]bool, len(all))
	for _, s := range all {
		names[s.Name] = true
	}
	return names, err
}

// ownPlace returns an environment's own deployment, as it is now.
func (e *Executor) ownPlace(ctx context.Context, ref driver.EnvironmentRef) (place, error) {
	name := DeploymentName(ref.LedgerID, ref.EnvironmentID)
	site, err := e.siteNamed(ctx, name)
	if err != nil || site.Name == "" {
		return place{name: name}, err
	}
	env := Environment{ID: ref.EnvironmentID, Image: imageOf(site), Prepared: site.Variables[variablePrepared]}
	return place{name: name, site: site, environments: []Environment{env}}, nil
}

// siteNamed finds a site by its name; it returns a zero Site if there is none.
func (e *Executor) siteNamed(ctx context.Context, name string) (Site, error) {
	site, err := e.deployer.Find(ctx, name)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return Site{}, nil
	}
	return site, err
}

// sharedPlace returns the deployment that environments of a ledger share. Unless fresh, it may be up to sharedSiteHolds
// old.
func (e *Executor) sharedPlace(ctx context.Context, ref driver.EnvironmentRef, fresh bool) (place, error) {
	site, err := e.sharedSite(ctx, SharedName(ref.LedgerID), fresh)
	if err != nil {
		return place{}, err
	}
	return e.sharedAt(ctx, ref, site)
}

// sharedAt is sharedPlace for a known site.
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

// environmentsOf returns the environments that share a Worker, without removed ones.
func environmentsOf(ctx context.Context, w *Worker, ref driver.EnvironmentRef) ([]Environment, error) {
	all, _, err := w.Environments(ctx, ref.Instance, ref.LedgerID)
	return slices.DeleteFunc(all, func(env Environment) bool { return env.RemovedAt != 0 }), err
}

// sharedSiteHolds is how long a shared site is cached: a plan reads all environments at the same time.
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

// placeFor returns the place of an environment, or the place to create it in: environments that share a deployment have
// PolicyDurableObject.
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

// policyAt returns the policy of an environment in its place: the one that it was created with, else the configured
// one.
func (e *Executor) policyAt(p place, size sandbox.Resources) SchedulingPolicy {
	switch {
	case p.shared:
		return PolicyDurableObject
	case p.site.Policy != "":
		return p.site.Policy
	}
	return e.configuredPolicy(size)
}

// lineTo returns a client of a place's Worker.
func (e *Executor) lineTo(p place) (*Worker, error) {
	if p.shared {
		return e.sharedLine(p.site)
	}
	return e.line(p.site)
}

// sharedLine returns the one client of a shared Worker: it has the sessions of all its environments.
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
