package cloudflare

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
)

// Environment is an environment that shares a Worker, in the form of worker/src/environments.ts.
type Environment struct {
	ID string `json:"id"`
	// Image is the environment's name for its image. Prepared is the image that its starts choose.
	Image    string `json:"image"`
	Prepared string `json:"prepared"`
	// RemovedAt is in milliseconds, 0 unless the environment was removed. Removed environments stay listed for ten days.
	RemovedAt int64 `json:"removed_at"`
}

// onEnvironment returns a request about an environment that shares the Worker, or about all of them.
func onEnvironment(ref driver.EnvironmentRef, method, what string) request {
	path := "/v1/instances/" + url.PathEscape(ref.Instance) + "/ledgers/" + url.PathEscape(ref.LedgerID) +
		"/environments"
	if ref.EnvironmentID == "" {
		return request{method: method, path: path, what: "ledger " + ref.LedgerID + ": " + what}
	}
	return request{
		method: method, path: path + "/" + url.PathEscape(ref.EnvironmentID),
		what: "environment " + ref.EnvironmentID + ": " + what,
	}
}

// Environments returns the environments of a ledger that share the Worker, and when the first one was added. It wakes
// no Durable Object.
func (w *Worker) Environments(
	ctx context.Context, instance, ledgerID string,
) (all []Environment, since time.Time, err error) {
	var said struct {
		Since        int64         `json:"since"`
		Environments []Environment `json:"environments"`
	}
	ref := driver.EnvironmentRef{LedgerID: ledgerID, Instance: instance}
	err = w.call(ctx, onEnvironment(ref, http.MethodGet, "list the environments of its Worker"), &said)
	return said.Environments, milliseconds(said.Since), err
}

// PutEnvironment adds an environment, or changes its image. The Worker of a closed ledger accepts none, because it is
// about to be deleted.
func (w *Worker) PutEnvironment(
	ctx context.Context, ref driver.EnvironmentRef, image, prepared string,
) (closed bool, err error) {
	r := onEnvironment(ref, http.MethodPut, "note its image")
	r.body = map[string]string{"image": image, "prepared": prepared}
	var said struct {
		Closed bool `json:"closed"`
	}
	err = w.call(ctx, r, &said)
	return said.Closed, err
}

// RemoveEnvironment removes an environment, with its rules, its logs and its LLM routes. Absent is success. Errors:
// Conflict while it has sandboxes.
func (w *Worker) RemoveEnvironment(ctx context.Context, ref driver.EnvironmentRef) error {
	return w.call(ctx, onEnvironment(ref, http.MethodDelete, "remove it from its Worker"), nil)
}

// CloseLedger closes a ledger that has neither environments nor sandboxes, and reports whether it is closed.
func (w *Worker) CloseLedger(ctx context.Context, instance, ledgerID string) (closed bool, err error) {
	var said struct {
		Closed bool `json:"closed"`
	}
	ref := driver.EnvironmentRef{LedgerID: ledgerID, Instance: instance}
	err = w.call(ctx, onEnvironment(ref, http.MethodDelete, "close its Worker"), &said)
	return said.Closed, err
}
