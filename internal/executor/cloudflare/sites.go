package cloudflare

import (
	"context"
	"time"
)

// For how long a list of deployments holds: what this process deploys or deletes ends it. Another process's deployment
// is missed meanwhile by Watch and List, whose receivers ask for each sandbox that they miss.
const (
	sitesHold = 5 * time.Minute
	// doubtedSitesHold is for how long it holds where a Worker did not answer: it may have been deleted.
	doubtedSitesHold = time.Minute
)

// sites are the deployments of a ledger as they were last listed.
type sites struct {
	all    []Site
	listed time.Time
	silent []string // the names of those that did not answer since
}

// sitesOf returns the deployments of a ledger. Few of its calls ask the account's API.
func (e *Executor) sitesOf(ctx context.Context, ledgerID string) ([]Site, error) {
	now := e.cfg.Now()
	e.mu.Lock()
	known := e.sites[ledgerID]
	deployed := e.deployed
	e.mu.Unlock()
	if known != nil {
		hold := sitesHold
		if len(known.silent) > 0 {
			hold = doubtedSitesHold
		}
		if now.Before(known.listed.Add(hold)) {
			return known.all, nil
		}
		for _, name := range known.silent {
			e.deployer.Doubt(name)
		}
	}
	all, err := e.deployer.List(ctx, ledgerID)
	if err != nil {
		return nil, unavailable(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if deployed == e.deployed { // else the list may be older than what was deployed meanwhile
		e.sites[ledgerID] = &sites{all: all, listed: now}
	}
	return all, nil
}

// silent notes the deployments of a ledger that did not answer.
func (e *Executor) silent(ledgerID string, names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.sites[ledgerID]; known != nil {
		e.sites[ledgerID] = &sites{all: known.all, listed: known.listed, silent: names}
	}
}
