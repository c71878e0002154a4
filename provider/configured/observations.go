package configured

import (
	"context"
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// readsAlone is how many leases a run reads one by one, before it lists those of each environment at once: a state
	// with a few leases of a large environment does not list it.
	readsAlone = 4
	// listedPages bounds the leases that are listed of one environment. What comes after them is read one by one.
	listedPages = 10
)

// observations are the leases that one run of Terraform has looked at. They are read at once for each environment, and
// each is as old as that at most. Its methods are safe for concurrent use.
type observations struct {
	mu           sync.Mutex // guards what follows
	alone        int        // leases that were read one by one
	environments map[string]*observed
	changed      map[string]bool // leases that this run has made or changed: they are read for themselves
}

// observed is one environment.
type observed struct {
	list *listing // nil until it is asked for

	reads       sync.Mutex // guards environment, while it is read too
	environment *sandbox.Environment
}

// listing is one list of an environment's leases, which all who need it wait for.
type listing struct {
	done   chan struct{}
	leases []sandbox.Lease // by id, once done
	byID   map[string]sandbox.Lease
	err    error
}

// Observe returns a lease as ObserveLease does, at most as old as this run's list of its environment.
func (p *Provider) Observe(ctx context.Context, svc service.Leases, id string) (sandbox.Lease, error) {
	_, environment, err := sandbox.ParseLeaseID(id)
	if err != nil || p.alone(environment, id) {
		return svc.ObserveLease(ctx, id)
	}
	l := p.list(ctx, svc, environment)
	if lease, ok := l.byID[id]; ok {
		return lease, nil
	}
	return svc.ObserveLease(ctx, id) // not in the list, or there is none: then this is its error too
}

// Siblings returns this run's list of an environment's leases. Errors: those of ListLeases.
func (p *Provider) Siblings(ctx context.Context, svc service.Leases, environment string) ([]sandbox.Lease, error) {
	l := p.list(ctx, svc, environment)
	return l.leases, l.err
}

// Environment returns an environment as this run read it first. Errors: those of GetEnvironment; it is read again then.
func (p *Provider) Environment(ctx context.Context, svc service.Environments, id string) (sandbox.Environment, error) {
	p.observations.mu.Lock()
	e := p.observations.of(id)
	p.observations.mu.Unlock()
	e.reads.Lock()
	defer e.reads.Unlock()
	if e.environment == nil {
		env, err := svc.GetEnvironment(ctx, id)
		if err != nil {
			return sandbox.Environment{}, err
		}
		e.environment = &env
	}
	return *e.environment, nil
}

// HasRead reports whether this run has read an environment.
func (p *Provider) HasRead(id string) bool {
	p.observations.mu.Lock()
	e := p.observations.of(id)
	p.observations.mu.Unlock()
	e.reads.Lock()
	defer e.reads.Unlock()
	return e.environment != nil
}

// Changed says that this run has made or changed a lease.
func (p *Provider) Changed(id string) {
	p.observations.mu.Lock()
	defer p.observations.mu.Unlock()
	if p.observations.changed == nil {
		p.observations.changed = make(map[string]bool)
	}
	p.observations.changed[id] = true
}

// IsChanged reports whether this run has made or changed a lease.
func (p *Provider) IsChanged(id string) bool {
	p.observations.mu.Lock()
	defer p.observations.mu.Unlock()
	return p.observations.changed[id]
}

// alone reports whether a lease is read for itself.
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

// list returns the list of an environment. The first caller reads it, with its own context; the others wait for it.
// One that failed is not read again.
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

// of returns an environment. The caller holds mu.
func (o *observations) of(environment string) *observed {
	if o.environments == nil {
		o.environments = make(map[string]*observed)
	}
	if o.environments[environment] == nil {
		o.environments[environment] = &observed{}
	}
	return o.environments[environment]
}
