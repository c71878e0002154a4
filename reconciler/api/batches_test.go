package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// seats returns n items of a batch.
func seats(n int) (items []sandbox.BatchItem) {
	for i := range n {
		items = append(items, sandbox.BatchItem{AgentDID: fmt.Sprint("did:plc:seat", i)})
	}
	return items
}

func (w *world) batch(b sandbox.AcquireBatch, header ...string) answer {
	w.Helper()
	body, err := json.Marshal(b)
	if err != nil {
		w.Fatal(err)
	}
	return w.do(http.MethodPost, "/v1/leases/batch", string(body), header...)
}

func TestABatchIsAnsweredItemByItem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.do(http.MethodPut, "/v1/environments/catan-7",
		`{"type":"catan","backend":"docker","image":"player","network":"none"}`)
	b := sandbox.AcquireBatch{
		EnvironmentID: "catan-7",
		Items:         append(seats(2), sandbox.BatchItem{AgentDID: "did:plc:lost", EnvironmentID: "nowhere"}),
	}
	a := w.batch(b)
	var got wire.AcquiredBatch
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.StatusCode != http.StatusOK || len(got.Results) != 3 {
		t.Fatalf("answered %d: %s (%v)", a.StatusCode, a.body, err)
	}
	for i, r := range got.Results[:2] {
		if r.Lease == nil || r.Error != nil || !r.IsNew || r.Lease.AgentDID != b.Items[i].AgentDID ||
			r.Lease.Owner != "token:admin" {
			t.Errorf("item %d is %+v", i, r)
		}
	}
	failed := got.Results[2]
	if failed.Lease != nil || failed.Error == nil || failed.Error.Status != 404 || failed.Error.Code != sandbox.NotFound ||
		failed.Error.RequestID != a.Header.Get(wire.HeaderRequestID) {
		t.Errorf("the item that failed is %+v", failed)
	}
	b.AllOrNone = true
	w.wantProblem(w.batch(b), 404, sandbox.NotFound, "items[2]")
	w.wantProblem(w.do(http.MethodPost, "/v1/leases/batch", `{"items":[{"agent":"did:plc:ann"}]}`), 422,
		sandbox.Invalid, "items[0].agent")
}

func TestABatchIsAnsweredAtOnceWhereThatIsPreferred(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.do(http.MethodPut, "/v1/environments/catan-7",
		`{"type":"catan","backend":"docker","image":"player","network":"none"}`)
	w.HoldSpawns(true)
	a := w.batch(sandbox.AcquireBatch{EnvironmentID: "catan-7", Items: seats(2), AllOrNone: true},
		"Prefer", "respond-async")
	if a.StatusCode != http.StatusAccepted || a.Header.Get("Preference-Applied") != "respond-async" ||
		strings.Count(a.body, `"status":"pending"`) != 2 {
		t.Errorf("answered %d, %v: %s", a.StatusCode, a.Header, a.body)
	}
	w.HoldSpawns(false)
	if a := w.batch(sandbox.AcquireBatch{EnvironmentID: "catan-7", Items: seats(2)}, "Prefer",
		"respond-async"); a.StatusCode != http.StatusOK && a.StatusCode != http.StatusAccepted {
		t.Errorf("answered %d: %s", a.StatusCode, a.body)
	}
}

// TestABatchHasTheBoundsOfItsToken: its environments and its ceiling limit a batch.
func TestABatchHasTheBoundsOfItsToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"catan-1", "rpg-1"} {
		w.do(http.MethodPut, "/v1/environments/"+id, `{"backend":"docker","image":"player","network":"none"}`)
	}
	a := w.holderOf(w.issue(sandbox.CreateToken{
		Name:         "a",
		Scopes:       []sandbox.Scope{sandbox.ScopeLease},
		Environments: []string{"catan-*"},
		Ceiling:      sandbox.Ceiling{Leases: 2},
	}))
	b := sandbox.AcquireBatch{
		EnvironmentID: "catan-1",
		Items:         append(seats(1), sandbox.BatchItem{AgentDID: "did:plc:lost", EnvironmentID: "rpg-1"}),
	}
	_, err := a.AcquireBatch(t.Context(), b)
	if sandbox.ReasonOf(err) != sandbox.ReasonEnvironmentNotAllowed {
		t.Errorf("another's environment in a batch: %v", err)
	}
	b.Items, b.AllOrNone = seats(3), true
	_, err = a.AcquireBatch(t.Context(), b)
	if e, ok := errors.AsType[*sandbox.Error](err); !ok || len(e.Fields) == 0 ||
		e.Reason != sandbox.ReasonCeilingExceeded || e.Fields[0].Name != "items[2]" {
		t.Errorf("a batch above the ceiling: %v", err)
	}
	if n := w.Running(); n != 0 {
		t.Errorf("%d sandboxes of refused batches run", n)
	}
	b.AllOrNone = false
	results, err := a.AcquireBatch(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if i < 2 && (r.Err != nil || r.Lease.Owner != "token:a") ||
			i == 2 && sandbox.ReasonOf(r.Err) != sandbox.ReasonCeilingExceeded {
			t.Errorf("item %d is %+v", i, r)
		}
	}
}

func TestEachItemOfABatchCountsForTheLimitOfItsToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.Limits = api.Limits{PerToken: 2} })
	w.do(http.MethodPut, "/v1/environments/catan-7",
		`{"type":"catan","backend":"docker","image":"player","network":"none"}`)
	// The batch counts as 9 requests, with a burst of 4.
	if a := w.batch(sandbox.AcquireBatch{EnvironmentID: "catan-7", Items: seats(8)}); a.StatusCode != http.StatusOK {
		t.Fatalf("answered %d: %s", a.StatusCode, a.body)
	}
	list := func() answer { return w.do(http.MethodGet, "/v1/leases", "") }
	w.wantLimited(list(), "3")
	w.Pass(2 * time.Second)
	w.wantLimited(list(), "1")
	w.Pass(time.Second)
	if a := list(); a.StatusCode != http.StatusOK {
		t.Errorf("once the batch is paid off: %d", a.StatusCode)
	}
}
