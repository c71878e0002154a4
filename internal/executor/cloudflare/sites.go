package cloudflare

import (
	"context"
	"strings"
	"time"
)

// How long a list of deployments is cached. A deployment or deletion by this process clears it. Until then, Watch and
// List miss deployments by other processes; their callers ask for each sandbox that is missing.
const (
	sitesHold = 5 * time.Minute
	// doubtedSitesHold applies if a Worker did not answer: it may have been deleted.
	doubtedSitesHold = time.Minute
)

// sites are the deployments of a ledger as they were last listed.
type sites struct {
	all    []Site
	listed time.Time
	silent []string // the names of deployments that did not answer since
}

// sitesOf returns the deployments of a ledger from a cache. Only one call at a time asks the account's API.
func (e *Executor) sitesOf(ctx context.Context, ledgerID string) ([]Site, error) {
	if known := e.knownSites(ledgerID); known.holdsAt(e.cfg.Now()) {
		return known.all, nil
	}
	select {
	case e.listing <- struct{}{}:
		defer func() { <-e.listing }()
	case <-ctx.Done():
		return nil, unavailable(ctx.Err())
	}
	known, now := e.knownSites(ledgerID), e.cfg.Now()
	if known.holdsAt(now) { // another call has listed them
		return known.all, nil
	}
	if known != nil {
		for _, name := range known.silent {
			e.deployer.Doubt(name)
		}
	}
	e.mu.Lock()
	deployed := e.deployed
	e.mu.Unlock()
	all, err := e.deployer.List(ctx, ledgerID)
	if err != nil {
		return nil, unavailable(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if deployed == e.deployed { // else the list may be older than a deployment
		e.sites[ledgerID] = &sites{all: all, listed: now}
		e.dropUnlisted(ledgerID, all)
	}
	return all, nil
}

// dropUnlisted removes the cached deployments of a ledger that a new list lacks: another process has deleted them, or
// an operator has. The caller holds mu.
func (e *Executor) dropUnlisted(ledgerID string, all []Site) {
	listed := make(map[string]bool, len(all))
	for _, s := range all {
		listed[s.Name] = true
	}
	for name, d := range e.workers {
		if !strings.HasPrefix(name, DeploymentPrefix(ledgerID)) || listed[name] && !d.shared ||
			d.shared && listed[SharedName(ledgerID)] {
			continue
		}
		e.note(name, nil)
		delete(e.journals, name)
	}
}

func (e *Executor) knownSites(ledgerID string) *sites {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sites[ledgerID]
}

// holdsAt reports whether a list is still fresh; nil is not.
func (s *sites) holdsAt(now time.Time) bool {
	if s == nil {
		return false
	}
	hold := sitesHold
	if len(s.silent) > 0 {
		hold = doubtedSitesHold
	}
	return now.Before(s.listed.Add(hold))
}

// silent records the deployments of a ledger that did not answer.
func (e *Executor) silent(ledgerID string, names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.sites[ledgerID]; known != nil {
		e.sites[ledgerID] = &sites{all: known.all, listed: known.listed, silent: names}
	}
}
