package routes

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/document"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/rights"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// LeasePath names a lease in a path. Exported for huma, see EnvironmentPath.
type LeasePath struct {
	ID string `path:"id" doc:"The lease's id, <agent_did>::<environment_id>."`
}

// Touches returns the target of the request.
func (p LeasePath) Touches() rights.Target { return rights.Lease(p.ID) }

// LeaseRef names a lease in a path, and fences by generation and owner. Exported for huma, see EnvironmentPath.
type LeaseRef struct {
	ID         string `path:"id" doc:"The lease's id, <agent_did>::<environment_id>." example:"did:plc:abc::catan-7"`
	Generation int64  `query:"generation" doc:"Fail with 409 unless this is the current generation."`
	Owner      string `query:"owner" doc:"Fail with 409 unless this is the owner."`
}

// Touches returns the target of the request.
func (r LeaseRef) Touches() rights.Target { return rights.Lease(r.ID) }

func (r LeaseRef) ref() sandbox.LeaseRef {
	return sandbox.LeaseRef{ID: r.ID, Generation: r.Generation, Owner: r.Owner}
}

func (s *Routes) registerLeases(d *document.Document) {
	tags := []string{"leases"}
	document.Add(d, sandbox.ScopeLease, huma.Operation{OperationID: "acquire-lease", Method: http.MethodPost,
		Path: "/v1/leases", Tags: tags,
		Summary: "Acquire a lease for an agent in an environment",
		Description: "Idempotent: of several callers, one gets is_new and status 201; the others get the same lease and " +
			"200. With `Prefer: respond-async` (RFC 7240), the response comes at once with 202 and a pending lease if the " +
			"sandbox is not ready yet. Poll its Location or follow its events.",
		Responses: map[string]*huma.Response{
			"201": d.Content("The lease is new.", wire.JSON, sandbox.Acquired{}),
			"202": d.Content("The lease is accepted, and its sandbox is being created.", wire.JSON, sandbox.Acquired{}),
		}}, acquire)
	s.registerBatches(d)
	document.Add(d, sandbox.ScopeRead, huma.Operation{OperationID: "list-leases", Method: http.MethodGet,
		Path: "/v1/leases", Tags: tags,
		Summary: "List leases by id"}, listLeases)
	document.Add(d, sandbox.ScopeRead, huma.Operation{OperationID: "get-lease", Method: http.MethodGet,
		Path: "/v1/leases/{id}", Tags: tags,
		Summary: "Show a lease in its current generation"}, getLease)
	document.Add(d, sandbox.ScopeLease, huma.Operation{OperationID: "renew-lease", Method: http.MethodPost,
		Path: "/v1/leases/{id}/renew", Tags: tags,
		Summary: "Renew a lease",
		Description: "Starts its time to live again. settings in the body replace the lease's own; without a body they " +
			"stay."}, renew)
	for _, release := range []huma.Operation{
		{OperationID: "release-lease", Method: http.MethodPost, Path: "/v1/leases/{id}/release"},
		{OperationID: "delete-lease", Method: http.MethodDelete, Path: "/v1/leases/{id}"},
	} {
		release.Tags, release.Summary = tags, "End a lease and wait until its sandbox is gone"
		release.Description = "With `Prefer: respond-async` (RFC 7240), the response comes at once: 202 with a lease that " +
			"is expired until its sandbox is gone."
		document.Add(d, sandbox.ScopeLease, release, releaseLease)
	}
	document.Add(d, sandbox.ScopeLease, huma.Operation{OperationID: "sleep-lease", Method: http.MethodPost,
		Path: "/v1/leases/{id}/sleep", Tags: tags,
		Summary: "Put a lease's sandbox to sleep"}, onLease(service.Service.Sleep))
	document.Add(d, sandbox.ScopeLease, huma.Operation{OperationID: "wake-lease", Method: http.MethodPost,
		Path: "/v1/leases/{id}/wake", Tags: tags,
		Summary: "Wake a lease's sandbox"}, onLease(service.Service.Wake))
	document.Add(d, sandbox.ScopeRead, huma.Operation{OperationID: "lease-usage", Method: http.MethodGet,
		Path: "/v1/leases/{id}/usage", Tags: tags,
		Summary: "Sample the resource usage of a lease's sandbox, without waking it"}, onLease(service.Service.LeaseUsage))
	document.Add(d, sandbox.ScopeRead, huma.Operation{OperationID: "lease-usage-history", Method: http.MethodGet,
		Path: "/v1/leases/{id}/usage/history", Tags: tags,
		Summary: "Show the past resource usage of a lease's sandbox",
		Description: "Samples are taken about once a minute and kept for 24 hours, also after the lease has ended. There " +
			"are none for times when the sandbox slept or its backend was unreachable."}, usageHistory)
	document.Add(d, sandbox.ScopeRead, huma.Operation{OperationID: "lease-health", Method: http.MethodGet,
		Path: "/v1/leases/{id}/health", Tags: tags,
		Summary:     "Check whether a lease's sandbox is usable, without waking it",
		Description: "A problem is a result, with status 200 and healthy false."}, onLease(service.Service.LeaseHealth))
}

type acquired struct {
	Status   int
	Location string `header:"Location" doc:"The lease."`
	Applied  string `header:"Preference-Applied" doc:"The preference that the response honors (RFC 7240)."`
	Body     sandbox.Acquired
}

type acquireInput struct {
	Prefer []string `header:"Prefer" doc:"respond-async: do not wait until the sandbox is ready (RFC 7240)."`
	Body   sandbox.Acquire
}

// Touches returns the target of the request.
func (in acquireInput) Touches() rights.Target { return rights.Environment(in.Body.EnvironmentID) }

func acquire(ctx context.Context, service service.Service, in *acquireInput) (*acquired, error) {
	token := rights.TokenOf(ctx)
	in.Body.Owner, in.Body.Tenant = rights.OwnerFor(token, in.Body.Owner), token.Tenant()
	in.Body.NoWait = wire.Prefers(in.Prefer, wire.RespondAsync)
	got, err := service.Acquire(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	out := &acquired{Status: http.StatusOK, Location: "/v1/leases/" + url.PathEscape(got.Lease.ID), Body: got}
	switch {
	case in.Body.NoWait && got.Lease.Status == sandbox.LeasePending:
		out.Status, out.Applied = http.StatusAccepted, wire.RespondAsync
	case got.IsNew:
		out.Status = http.StatusCreated
	}
	return out, nil
}

func listLeases(ctx context.Context, service service.Service, in *struct {
	EnvironmentQuery
	AgentDID string                `query:"agent_did"`
	Status   sandbox.LeaseStatus   `query:"status" doc:"pending, active, expired or destroyed."`
	Labels   sandbox.LabelSelector `query:"labels" doc:"Only with these labels: key=value or key, separated by commas."`
	Search   string                `query:"search" doc:"Only leases whose id contains this text, in upper or lower case."`
	Sort     sandbox.LeaseSort     `query:"sort" doc:"id, environment, leased, activity or expiry; with a - before it in reverse. Default id."`
	After    string                `query:"after" doc:"next_after of the previous page."`
	Limit    int                   `query:"limit" doc:"Page size, 1 to 1000. Default 1000." minimum:"1" maximum:"1000"`
	Observe  bool                  `query:"observe" doc:"Look at the sandboxes on their backends first, and record what drifted."`
}) (*reply[wire.LeasePage], error) {
	filter := sandbox.LeaseFilter{
		EnvironmentID: in.EnvironmentID, AgentDID: in.AgentDID, Status: in.Status, Labels: in.Labels,
		Search: in.Search, Sort: in.Sort, After: in.After, Limit: in.Limit, Observe: in.Observe,
	}
	leases, err := service.ListLeases(ctx, filter)
	page := wire.LeasePage{Leases: notNil(leases)}
	if full(len(leases), in.Limit) {
		page.NextAfter = filter.Next(leases[len(leases)-1])
	}
	return replyWith(page, err)
}

func getLease(ctx context.Context, service service.Service, in *struct {
	LeasePath
	Observe bool `query:"observe" doc:"Check the sandbox on its backend first, and record drift."`
}) (*reply[sandbox.Lease], error) {
	if in.Observe {
		return replyWith(service.ObserveLease(ctx, in.ID))
	}
	return replyWith(service.GetLease(ctx, in.ID))
}

func renew(ctx context.Context, service service.Service, in *struct {
	LeaseRef
	Body *wire.RenewRequest
}) (*reply[sandbox.Lease], error) {
	r := sandbox.Renew{LeaseRef: in.ref()}
	if in.Body != nil {
		r.Settings = in.Body.Settings
	}
	return replyWith(service.Renew(ctx, r))
}

type released struct {
	Status  int
	Applied string `header:"Preference-Applied" doc:"The preference that the response honors (RFC 7240)."`
	Body    sandbox.Lease
}

func releaseLease(ctx context.Context, service service.Service, in *struct {
	LeaseRef
	Prefer []string `header:"Prefer" doc:"respond-async: do not wait until the sandbox is gone (RFC 7240)."`
}) (*released, error) {
	if !wire.Prefers(in.Prefer, wire.RespondAsync) {
		lease, err := service.Release(ctx, in.ref())
		return &released{Status: http.StatusOK, Body: lease}, err
	}
	lease, err := service.StartRelease(ctx, in.ref())
	out := &released{Status: http.StatusOK, Body: lease}
	if err == nil && lease.Status != sandbox.LeaseDestroyed {
		out.Status, out.Applied = http.StatusAccepted, wire.RespondAsync
	}
	return out, err
}

func usageHistory(ctx context.Context, service service.Service, in *struct {
	LeaseRef
	From time.Time `query:"from" doc:"RFC 3339. Default: the oldest sample."`
	To   time.Time `query:"to" doc:"RFC 3339, exclusive. Default: now."`
}) (*reply[sandbox.LeaseUsageHistory], error) {
	h, err := service.LeaseUsageHistory(ctx, sandbox.UsageHistoryQuery{LeaseRef: in.ref(), From: in.From, To: in.To})
	h.Samples = notNil(h.Samples)
	return replyWith(h, err)
}

// onLease returns a handler for a method that takes only a lease.
func onLease[T any](
	method func(service.Service, context.Context, sandbox.LeaseRef) (T, error),
) func(context.Context, service.Service, *LeaseRef) (*reply[T], error) {
	return func(ctx context.Context, service service.Service, in *LeaseRef) (*reply[T], error) {
		return replyWith(method(service, ctx, in.ref()))
	}
}
