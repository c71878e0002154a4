package cloudflare

import (
	"context"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// line returns a client of a site's Worker. All clients of a Worker share one keyring, which has the current keys.
func (e *Executor) line(s Site) (*Worker, error) {
	keys, err := e.keysOf(s.Name)
	e.mu.Lock()
	ring := e.rings[s.Name]
	switch {
	case ring == nil && err != nil:
		e.mu.Unlock()
		return nil, err
	case ring == nil:
		ring = newKeyring(keys)
		e.rings[s.Name] = ring
	case err == nil: // after an error, the previous keys stay
		ring.set(keys)
	}
	e.mu.Unlock()
	ring.prefer(s.SigningKeyDigest)
	return NewWorker(WorkerConfig{URL: s.URL, keys: ring, HTTP: e.cfg.HTTP, Now: e.cfg.Now})
}

// learn caches a site that the current lists may lack. Errors: NotFound if it has no URL.
func (e *Executor) learn(s Site) (*deployed, error) {
	d, err := e.deployedAs(s)
	if err == nil {
		e.replace(s.Name, d)
	}
	return d, err
}

// deployedAs returns a site in its cached form. Errors: NotFound if it has no URL.
func (e *Executor) deployedAs(s Site) (*deployed, error) {
	if s.URL == "" {
		return nil, sandbox.Errorf(sandbox.NotFound, "cloudflare: deployment %s is incomplete: it lacks %v", s.Name,
			s.Missing)
	}
	w, err := e.line(s)
	if err != nil {
		return nil, err
	}
	d := &deployed{Worker: w, image: imageOf(s)}
	if s.Policy == PolicyDurableObject {
		d.prepared = s.Variables[variablePrepared]
	}
	return d, nil
}

// forget makes the next use look a deployment up again. Operations in its sandboxes continue until Close.
func (e *Executor) forget(name string) { e.replace(name, nil) }

// replace replaces a deployment by another, or by none, and empties the cached lists of deployments.
func (e *Executor) replace(name string, by *deployed) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.note(name, by)
	clear(e.networks)
	delete(e.journals, name)
	clear(e.sites)
	e.deployed++
}

// note caches a deployment; nil removes it. The caller holds mu.
func (e *Executor) note(name string, by *deployed) {
	e.former = slices.DeleteFunc(e.former, func(d *deployed) bool { return d.sessions.none() })
	if d := e.workers[name]; d != nil && !d.shared {
		e.former = append(e.former, d)
	}
	delete(e.workers, name)
	if by != nil {
		e.workers[name] = by
	}
}

// find returns the deployment of an environment. Errors: NotFound if there is none.
func (e *Executor) find(ctx context.Context, ledgerID, environmentID, instance string) (*deployed, error) {
	if err := e.confirm(ctx, instance); err != nil {
		return nil, err
	}
	name := DeploymentName(ledgerID, environmentID)
	if d := e.known(name); d != nil {
		return d, nil
	}
	if d, err := e.ask(ctx, ledgerID, name, instance); d != nil || err != nil {
		return d, err
	}
	ref := driver.EnvironmentRef{LedgerID: ledgerID, EnvironmentID: environmentID, Instance: instance}
	p, err := e.locate(ctx, ref, true)
	switch {
	case err != nil:
		return nil, unavailable(err)
	case !p.shared:
		return e.learn(p.site)
	case p.unanswered != nil:
		return nil, unavailable(p.unanswered)
	}
	if p.site.URL != "" {
		if err := e.learnShared(ledgerID, p); err != nil {
			return nil, err
		}
	}
	if d := e.known(name); d != nil {
		e.changed() // the list lacks it
		return d, nil
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "cloudflare: account %s: environment %s is not deployed", instance,
		environmentID)
}

// known returns a cached deployment, or nil.
func (e *Executor) known(name string) *deployed {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.workers[name]
}

// ask asks a listed Worker for its settings, which saves the ten API calls of Find. It returns nil if the Worker does
// not return them: use Find then.
func (e *Executor) ask(ctx context.Context, ledgerID, name, instance string) (*deployed, error) {
	sites, err := e.sitesOf(ctx, ledgerID)
	if err != nil {
		return nil, nil //nolint:nilerr // locate says why
	}
	if s, ok := answering(sites, name); ok {
		if s, ok = e.introduced(ctx, s); !ok {
			return nil, nil
		}
		d, err := e.deployedAs(s)
		if err == nil {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.note(name, d)
		}
		return d, err
	}
	s, ok := answering(sites, SharedName(ledgerID))
	if !ok {
		return nil, nil // another process may have created it
	}
	p, err := e.sharedAt(ctx, driver.EnvironmentRef{LedgerID: ledgerID, Instance: instance}, s)
	if err != nil {
		return nil, err
	}
	if p.unanswered != nil {
		return nil, nil // locate asks again
	}
	if err := e.learnShared(ledgerID, p); err != nil {
		return nil, err
	}
	return e.known(name), nil
}

// answering returns the site with this name if it has a URL.
func answering(sites []Site, name string) (Site, bool) {
	i := slices.IndexFunc(sites, func(s Site) bool { return s.Name == name && s.URL != "" })
	if i < 0 {
		return Site{}, false
	}
	return sites[i], true
}

// introduced completes a listed site with the answer of its Worker.
func (e *Executor) introduced(ctx context.Context, s Site) (_ Site, told bool) {
	w, err := e.line(s)
	if err != nil {
		return s, false
	}
	answer, err := w.introduce(ctx)
	s.Variables = map[string]string{variableImage: answer.Image, variablePrepared: answer.Prepared}
	if answer.Policy == PolicyDurableObject {
		s.Policy, s.Image = answer.Policy, ""
	}
	return s, err == nil && answer.Prepared != ""
}

// worker returns the Worker of a sandbox. Errors: NotFound if its environment has no Worker, and so no sandboxes.
func (e *Executor) worker(ctx context.Context, h driver.Handle) (*Worker, error) {
	d, err := e.find(ctx, h.LedgerID, h.EnvironmentID, h.Instance)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil, sandbox.Errorf(sandbox.NotFound, "cloudflare: sandbox %s does not exist: %w", h.SandboxID, err).
			WithReason(sandbox.ReasonSandboxNotFound)
	}
	if err != nil {
		return nil, err
	}
	return d.Worker, nil
}
