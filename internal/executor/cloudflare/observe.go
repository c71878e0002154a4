package cloudflare

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Listed is one sandbox of a list.
type Listed struct {
	SandboxID string
	SandboxStatus
}

// List returns the sandboxes of an instance and a ledger on this Worker, sorted by id, from their copies in D1. A
// change without a request, such as a crash, may appear a moment late. List wakes no sandbox.
func (w *Worker) List(ctx context.Context, instance, ledgerID string) ([]Listed, error) {
	var all []Listed
	for after, more := "", true; more; {
		page, err := w.page(ctx, instance, ledgerID, after)
		if err != nil {
			return nil, err
		}
		w.signer.keys.prefer(page.Keys)
		for _, s := range page.Sandboxes {
			after = s.ID
			all = append(all, Listed{s.ID, s.View.decode()})
		}
		more = page.More
	}
	return all, nil
}

// listed is a page of a list, in the form of worker/src/copy.ts.
type listed struct {
	Sandboxes []struct {
		ID   string        `json:"id"`
		View sandboxStatus `json:"view"`
	} `json:"sandboxes"`
	More bool   `json:"more"`
	Keys string `json:"keys"`
}

// Retries of a page: without them, a lost page would cost the whole list.
const (
	pageAttempts = 3
	pagePause    = 100 * time.Millisecond
)

// page returns the sandboxes after an id.
func (w *Worker) page(ctx context.Context, instance, ledgerID, after string) (page listed, err error) {
	r := request{
		method: http.MethodGet,
		path: "/v1/instances/" + url.PathEscape(instance) + "/ledgers/" + url.PathEscape(ledgerID) +
			"/sandboxes?after=" + after,
		what: "list the sandboxes of ledger " + ledgerID,
	}
	ctx, cancel := context.WithTimeout(ctx, readLimit) // of all attempts
	defer cancel()
	for left := pageAttempts; ; left-- {
		page = listed{}
		if err = w.call(ctx, r, &page); sandbox.CodeOf(err) != sandbox.Unavailable || left == 1 {
			return page, err
		}
		select {
		case <-time.After(pagePause):
		case <-ctx.Done():
			return page, err
		}
	}
}

// Usage samples an awake sandbox: the guest reads its cgroup. It does not count as use of the sandbox. Errors:
// NotFound, Conflict when it is stopped, Failed with ReasonStatsFailed.
func (w *Worker) Usage(ctx context.Context, h driver.Handle) (driver.Usage, error) {
	var u wire.Usage
	if err := w.call(ctx, onSandbox(h, http.MethodGet, "usage", "sample it"), &u); err != nil {
		return driver.Usage{}, err
	}
	return driver.Usage{CPUTime: u.CPUTime, MemoryBytes: u.MemoryBytes, PIDs: u.PIDs}, nil
}

// Metered implements driver.Meter. Cloudflare counts by application, so environments that share one are counted
// together.
func (e *Executor) Metered(
	ctx context.Context, refs []driver.EnvironmentRef, from, to time.Time,
) ([]driver.MeteredGroup, error) {
	var names []string
	for _, ref := range refs {
		if err := e.confirm(ctx, ref.Instance); err != nil {
			return nil, err
		}
		names = append(names, DeploymentName(ref.LedgerID, ref.EnvironmentID), SharedName(ref.LedgerID))
	}
	counted, err := e.deployer.Metered(ctx, names, from, to)
	if err != nil {
		return nil, err
	}
	var groups []driver.MeteredGroup
	shared := map[string]bool{}
	for _, ref := range refs {
		if days, ok := counted[DeploymentName(ref.LedgerID, ref.EnvironmentID)]; ok {
			groups = append(groups, driver.MeteredGroup{Environments: []driver.EnvironmentRef{ref}, Days: days})
		}
		name := SharedName(ref.LedgerID)
		days, ok := counted[name]
		if !ok || shared[name] {
			continue
		}
		shared[name] = true
		group, err := e.sharing(ctx, ref)
		if err != nil {
			return nil, err
		}
		group.Days = days
		groups = append(groups, group)
	}
	return groups, nil
}

// sharing returns the environments that share the application of a ledger, including recently removed ones.
func (e *Executor) sharing(ctx context.Context, of driver.EnvironmentRef) (driver.MeteredGroup, error) {
	group := driver.MeteredGroup{Shared: true}
	sites, err := e.sitesOf(ctx, of.LedgerID)
	if err != nil {
		return group, err
	}
	site, ok := answering(sites, SharedName(of.LedgerID))
	if !ok {
		return group, sandbox.Errorf(sandbox.Unavailable, "cloudflare: ledger %s: its shared Worker does not answer",
			of.LedgerID)
	}
	w, err := e.sharedLine(site)
	if err != nil {
		return group, err
	}
	all, since, err := w.Environments(ctx, of.Instance, of.LedgerID)
	for _, env := range all {
		of.EnvironmentID = env.ID
		group.Environments = append(group.Environments, of)
	}
	group.Since = since
	return group, err
}
