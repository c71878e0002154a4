package routes

import (
	"context"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/document"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/rights"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// EnvironmentPath names an environment in a path. Exported, because huma skips embedded fields that are not.
type EnvironmentPath struct {
	ID string `path:"id" doc:"The environment's id, as chosen by its creator."`
}

// Touches returns the target of the request.
func (p EnvironmentPath) Touches() rights.Target { return rights.Environment(p.ID) }

// EnvironmentQuery limits a list or report to an environment. Exported for huma, see EnvironmentPath.
type EnvironmentQuery struct {
	EnvironmentID string `query:"environment_id"`
}

// Touches returns the target of the request.
func (q EnvironmentQuery) Touches() rights.Target { return rights.Environment(q.EnvironmentID) }

func (s *Routes) registerEnvironments(d *document.Document) {
	tags := []string{"environments"}
	document.Add(d, sandbox.ScopeRead, huma.Operation{OperationID: "list-environments", Method: http.MethodGet,
		Path: "/v1/environments", Tags: tags,
		Summary: "List environments that are not destroyed"}, listEnvironments)
	document.Add(d, sandbox.ScopeAdmin, huma.Operation{OperationID: "put-environment", Method: http.MethodPut,
		Path: "/v1/environments/{id}", Tags: tags,
		Summary: "Create or change an environment",
		Description: "Replaces all settings: an absent one gets its default. Live leases follow in times and conditions; " +
			"the image and the size apply to the next leases. A request that changes nothing has no event."}, putEnvironment)
	document.Add(d, sandbox.ScopeAdmin, huma.Operation{OperationID: "check-environment", Method: http.MethodPost,
		Path: "/v1/environments/{id}/check", Tags: tags,
		Summary: "Check the creation or change of an environment, and change nothing",
		Description: "Answers 204 to a request that put-environment would accept now, and otherwise with its error. " +
			"Whether a registry has an image that the backend pulls is not checked."}, checkEnvironment)
	document.Add(d, sandbox.ScopeRead, huma.Operation{OperationID: "get-environment", Method: http.MethodGet,
		Path: "/v1/environments/{id}", Tags: tags,
		Summary: "Show an environment"}, getEnvironment)
	document.Add(d, sandbox.ScopeAdmin, huma.Operation{OperationID: "delete-environment", Method: http.MethodDelete,
		Path: "/v1/environments/{id}", Tags: tags,
		Summary: "Delete an environment and wait until its sandboxes are gone"}, deleteEnvironment)
	document.Add(d, sandbox.ScopeAdmin, huma.Operation{OperationID: "reopen-environment", Method: http.MethodPost,
		Path: "/v1/environments/{id}/reopen", Tags: tags,
		Summary: "Reopen an ended environment for new leases"}, reopenEnvironment)
}

func listEnvironments(ctx context.Context, service service.Service, in *struct {
	unlimited
	Labels sandbox.LabelSelector `query:"labels" doc:"Only with these labels: key=value or key, separated by commas."`
}) (*reply[wire.EnvironmentPage], error) {
	if err := in.Labels.Validate(); err != nil {
		return nil, err
	}
	list, err := service.ListEnvironments(ctx)
	list = slices.DeleteFunc(list, func(e sandbox.Environment) bool { return !in.Labels.Selects(e.Labels) })
	return replyWith(wire.EnvironmentPage{Environments: rights.Visible(rights.TokenOf(ctx), list)}, err)
}

// EnvironmentBody is a request to create or change an environment. Exported for huma, see EnvironmentPath.
type EnvironmentBody struct {
	EnvironmentPath
	Body sandbox.PutEnvironment
}

// asked returns the request of the caller.
func (in *EnvironmentBody) asked(ctx context.Context) (sandbox.PutEnvironment, error) {
	put := in.Body
	if put.ID != "" && put.ID != in.ID {
		return put, sandbox.InvalidFields("environment",
			[]sandbox.Field{{Name: "id", Problem: "differs from the id in the path"}})
	}
	token := rights.TokenOf(ctx)
	put.ID, put.Owner, put.Tenant = in.ID, rights.OwnerFor(token, put.Owner), token.Tenant()
	return put, nil
}

func putEnvironment(ctx context.Context, service service.Service,
	in *EnvironmentBody) (*reply[sandbox.Environment], error) {
	put, err := in.asked(ctx)
	if err != nil {
		return nil, err
	}
	return replyWith(service.PutEnvironment(ctx, put))
}

func checkEnvironment(ctx context.Context, service service.Service, in *EnvironmentBody) (*empty, error) {
	put, err := in.asked(ctx)
	if err != nil {
		return nil, err
	}
	return nil, service.CheckEnvironment(ctx, put)
}

func getEnvironment(ctx context.Context, service service.Service,
	in *EnvironmentPath) (*reply[sandbox.Environment], error) {
	return replyWith(service.GetEnvironment(ctx, in.ID))
}

func deleteEnvironment(ctx context.Context, service service.Service, in *struct {
	EnvironmentPath
	Force bool   `query:"force" doc:"End active leases too."`
	Owner string `query:"owner" doc:"Delete it only if this is its owner. Default: any owner."`
}) (*empty, error) {
	return nil, service.DeleteEnvironment(ctx, sandbox.DeleteEnvironment{ID: in.ID, Owner: in.Owner, Force: in.Force})
}

func reopenEnvironment(ctx context.Context, service service.Service,
	in *EnvironmentPath) (*reply[sandbox.Environment], error) {
	return replyWith(service.ReopenEnvironment(ctx, in.ID))
}
