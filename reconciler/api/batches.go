package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (s *server) registerBatches(d *document) {
	add(d, huma.Operation{OperationID: "acquire-leases", Method: http.MethodPost, Path: "/v1/leases/batch", Tags: []string{"leases"},
		Summary: "Acquire the leases of several agents at once",
		Description: fmt.Sprintf("Acquires up to %d leases, such as all of a game's table, as acquire-lease does each: "+
			"idempotent, accepted in one commit, made at once. "+
			"The status is 200 also where items failed: each result is a lease or an error, in the order of the items. "+
			"With all_or_none one failed item fails the request, with that item's status, code and reason. The first field names it "+
			"(items[n]), and what the batch has begun is released. Such a batch comes to its end, one way or the other, when the caller "+
			"or the reconciler goes away: send it again to learn which. "+
			"A batch that is not valid, or names an environment that the token may not touch, is refused as a whole. "+
			"Each item counts as one request for the limits of requests. "+
			"With `Prefer: respond-async` the leases are answered once they are accepted, with 202 where one is pending.", sandbox.MaxBatch),
		Responses: map[string]*huma.Response{
			"202": d.content("The leases are accepted, and sandboxes are being made.", wire.JSON, wire.AcquiredBatch{}),
		}}, s.acquireBatch)
}

type acquiredBatch struct {
	Status  int
	Applied string `header:"Preference-Applied" doc:"The preference that the answer follows (RFC 7240)."`
	Body    wire.AcquiredBatch
}

func (s *server) acquireBatch(ctx context.Context, service service.Service, in *struct {
	Prefer []string `header:"Prefer" doc:"respond-async: do not wait until the sandboxes are ready (RFC 7240)."`
	Body   sandbox.AcquireBatch
}) (*acquiredBatch, error) {
	s.chargeItems(exchangeOf(ctx), len(in.Body.Items))
	in.Body.NoWait = wire.Prefers(in.Prefer, wire.RespondAsync)
	results, err := service.AcquireBatch(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	out := &acquiredBatch{Status: http.StatusOK, Body: wire.AcquiredBatch{Results: make([]wire.AcquiredItem, len(results))}}
	for i := range results {
		item := &out.Body.Results[i]
		if err := results[i].Err; err != nil {
			p := problemOf(err)
			exchangeOf(ctx).note(p)
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
