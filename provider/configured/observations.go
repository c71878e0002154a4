package configured

import (
	"context"
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// readsAlone is how many leases a run reads one by one before it lists all leases of an environment. So a state
	// with a few leases of a large environment does not list them all.
	readsAlone = 4
	// listedPages limits the pages that a run lists for one environment. It reads further leases one by one.
	listedPages = 10
)

// observations are the leases that one run of Terraform has read. A run lists all leases of an environment in one go;
// no observation is older than that list. Its methods are safe for concurrent use.
type observations struct {
	mu           sync.Mutex // guards the fields below
	alone        int        // leases read one by one
	environments map[string]*observed
	changed      map[string]bool // leases that this run has created or changed, and so reads one by one
}

// observed is what a run has read of one environment.
type observed struct {
	list *listing // nil until first needed

	reads       sync.Mutex // guards environment, also while it is being read
	environment *sandbox.Environment
}

// listing is one list of an environment's leases. All callers that need it wait for it.
type listing struct {
	done   chan struct{}
	leases []sandbox.Lease // by id; valid once done is closed
	byID   map[string]sandbox.Lease
	err    error
}

// Observe returns a lease as ObserveLease does. The result may be as old as this run's list of its environment.
func (p *Provider) Observe(ctx context.Context, svc service.Leases, id string) (sandbox.Lease, error) {
	_, environment, err := sandbox.ParseLeaseID(id)
	if err != nil || p.alone(environment, id) {
		return svc.ObserveLease(ctx, id)
	}
	l := p.list(ctx, svc, environment)
	if lease, ok := l.byID[id]; ok {
		return lease, nil
	}
	return svc.ObserveLease(ctx, id) // not listed, or the list failed: return this call's error
}

// Siblings returns this run's list of an environment's leases. Errors: those of ListLeases.
func (p *Provider) Siblings(ctx context.Context, svc service.Leases, environment string) ([]sandbox.Lease, error) {
	l := p.list(ctx, svc, environment)
	return l.leases, l.err
}

// Environment returns an environment as this run last read it, and reads it if this run has not. After an error, the
// next call reads again. Errors: those of GetEnvironment.
func (p *Provider) Environment(ctx context.Context, svc service.Environments, id string) (sandbox.Environment, error) {
	p.observations.mu.Lock()
	e := p.observations.of(id)
	p.observations.mu.Unlock()
	e.reads.Lock()
	defer e.reads.Unlock()
	if e.environment == nil {
		return e.read(ctx, svc, id)
	}
	return *e.environment, nil
}

// ReadEnvironment reads an environment, also if this run has read it before. Errors: those of GetEnvironment.
func (p *Provider) ReadEnvironment(ctx context.Context, svc service.Environments,
	id string) (sandbox.Environment, error) {
	p.observations.mu.Lock()
	e := p.observations.of(id)
	p.observations.mu.Unlock()
	e.reads.Lock()
	defer e.reads.Unlock()
	return e.read(ctx, svc, id)
}

// read reads the environment. The caller holds reads.
func (e *observed) read(ctx context.Context, svc service.Environments, id string) (sandbox.Environment, error) {
	env, err := svc.GetEnvironment(ctx, id)
	if err != nil {
		return sandbox.Environment{}, err
	}
	e.environment = &env
	return env, nil
}

// Read returns an environment as this run last read it. It returns false if this run has not read it.
func (p *Provider) Read(environmentID string) (sandbox.Environment, bool) {
	p.observations.mu.Lock()
	e := p.observations.of(environmentID)
	p.observations.mu.Unlock()
	e.reads.Lock()
	defer e.reads.Unlock()
	if e.environment == nil {
		return sandbox.Environment{}, false
	}
	return *e.environment, true
}

// Changed records that this run has created or changed a lease.
func (p *Provider) Changed(id string) {
	p.observations.mu.Lock()
	defer p.observations.mu.Unlock()
	if p.observations.changed == nil {
		p.observations.changed = make(map[string]bool)
	}
	p.observations.changed[id] = true
}

// IsChanged reports whether this run has created or changed a lease.
func (p *Provider) IsChanged(id string) bool {
	p.observations.mu.Lock()
	defer p.observations.mu.Unlock()
	return p.observations.changed[id]
}

// alone reports whether to read a lease on its own.
func (p *Provider) alone(environment, id string) bool {
	p.observations.mu.Lock()
	defer p.observations.mu.Unlock()
	if p.observations.changed[id] {
		return true
	}
	if p.observations.alone == readsAlone || p.observations.of(environment).list != nil {
		return false
	}
	p.observations.alone++
	return true
}

// list returns the list of an environment. The first caller reads it, with its own context, and the others wait. A
// failed list is not read again.
func (p *Provider) list(ctx context.Context, svc service.Leases, environment string) *listing {
	p.observations.mu.Lock()
	e := p.observations.of(environment)
	l := e.list
	first := l == nil
	if first {
		l = &listing{done: make(chan struct{}), byID: map[string]sandbox.Lease{}}
		e.list = l
	}
	p.observations.mu.Unlock()
	if first {
		l.read(ctx, svc, environment)
		close(l.done)
		return l
	}
	select {
	case <-l.done:
		return l
	case <-ctx.Done():
		return &listing{err: ctx.Err()}
	}
}

func (l *listing) read(ctx context.Context, svc service.Leases, environment string) {
	f := sandbox.LeaseFilter{EnvironmentID: environment, Observe: true}
	for lease, err := range service.EachLease(ctx, svc, f) {
		if err != nil {
			l.leases, l.byID, l.err = nil, nil, err
			return
		}
		l.leases = append(l.leases, lease)
		l.byID[lease.ID] = lease
		if len(l.leases) == listedPages*sandbox.MaxPage {
			return
		}
	}
}

// of returns the entry of an environment. The caller holds mu.
func (o *observations) of(environment string) *observed {
	if o.environments == nil {
		o.environments = make(map[string]*observed)
	}
	if o.environments[environment] == nil {
		o.environments[environment] = &observed{}
	}
	return o.environments[environment]
}
