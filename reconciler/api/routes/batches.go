package routes

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/document"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/exchange"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/problem"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/rights"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (s *Routes) registerBatches(d *document.Document) {
	document.Add(d, sandbox.ScopeLease, huma.Operation{OperationID: "acquire-leases", Method: http.MethodPost,
		Path: "/v1/leases/batch", Tags: []string{"leases"},
		Summary: "Acquire leases for several agents at once",
		Description: fmt.Sprintf("Acquires up to %d leases, such as all leases of one game table. Each item works like "+
			"acquire-lease and is idempotent. All items are accepted in one commit, and their sandboxes are created in "+
			"parallel. "+
			"The status is 200 even if items failed: each result is a lease or an error, in the order of the items. "+
			"With all_or_none, one failed item fails the request with that item's status, code and reason. "+
			"The first field names the item (items[n]), and the leases that the batch created are released. The reconciler "+
			"finishes or rolls back such a batch even if the caller disconnects or the reconciler restarts: repeat the request "+
			"to learn the outcome. A batch that is invalid, or names an environment that the token may not use, is rejected "+
			"as a whole. Each item counts as one request for the rate limits. With `Prefer: respond-async`, the response is "+
			"sent once the leases are accepted, with status 202 if one is pending.", sandbox.MaxBatch),
		Responses: map[string]*huma.Response{
			"202": d.Content("The leases are accepted, and the sandboxes are being created.", wire.JSON, wire.AcquiredBatch{}),
		}}, s.acquireBatch)
}

type acquiredBatch struct {
	Status  int
	Applied string `header:"Preference-Applied" doc:"The preference that the response honors (RFC 7240)."`
	Body    wire.AcquiredBatch
}

type acquireBatchInput struct {
	Prefer []string `header:"Prefer" doc:"respond-async: do not wait until the sandboxes are ready (RFC 7240)."`
	Body   sandbox.AcquireBatch
}

// Touches returns the target of the whole batch: one forbidden environment rejects all of it.
func (in acquireBatchInput) Touches() rights.Target {
	var all []rights.Target
	for _, a := range in.Body.Each() {
		all = append(all, rights.Environment(a.EnvironmentID))
	}
	return rights.All(all...)
}

func (s *Routes) acquireBatch(ctx context.Context, service service.Service, in *acquireBatchInput,
) (*acquiredBatch, error) {
	token := rights.TokenOf(ctx)
	in.Body.Owner, in.Body.Tenant = rights.OwnerFor(token, in.Body.Owner), token.Tenant()
	s.Charge(exchange.Of(ctx), len(in.Body.Items))
	in.Body.NoWait = wire.Prefers(in.Prefer, wire.RespondAsync)
	results, err := service.AcquireBatch(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	out := &acquiredBatch{
		Status: http.StatusOK,
		Body:   wire.AcquiredBatch{Results: make([]wire.AcquiredItem, len(results))},
	}
	for i := range results {
		item := &out.Body.Results[i]
		if err := results[i].Err; err != nil {
			p := problem.Of(err)
			exchange.Of(ctx).Note(p)
			item.Error = &p.Problem
			continue
		}
		item.Lease, item.IsNew = &results[i].Lease, results[i].IsNew
		if in.Body.NoWait && item.Lease.Status == sandbox.LeasePending {
			out.Status, out.Applied = http.StatusAccepted, wire.RespondAsync
		}
	}
	return out, nil
}
