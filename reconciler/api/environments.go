package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// reply is an answer with a JSON body.
type reply[T any] struct {
	Body T
}

func replyWith[T any](v T, err error) (*reply[T], error) {
	if err != nil {
		return nil, err
	}
	return &reply[T]{Body: v}, nil
}

// empty is an answer, or a request, without anything.
type empty struct{}

// EnvironmentPath names an environment in a path. It is exported because huma skips embedded
// fields that are not.
type EnvironmentPath struct {
	ID string `path:"id" doc:"The environment's id, the name that its user chose."`
}

func (s *server) registerEnvironments(d *document) {
	tags := []string{"environments"}
	add(d, huma.Operation{OperationID: "list-environments", Method: http.MethodGet, Path: "/v1/environments", Tags: tags,
		Summary: "List the environments that are not destroyed"}, listEnvironments)
	add(d, huma.Operation{OperationID: "put-environment", Method: http.MethodPut, Path: "/v1/environments/{id}", Tags: tags,
		Summary: "Make or change an environment"}, putEnvironment)
	add(d, huma.Operation{OperationID: "get-environment", Method: http.MethodGet, Path: "/v1/environments/{id}", Tags: tags,
		Summary: "Show an environment"}, getEnvironment)
	add(d, huma.Operation{OperationID: "delete-environment", Method: http.MethodDelete, Path: "/v1/environments/{id}", Tags: tags,
		Summary: "Remove an environment and wait until its sandboxes are gone"}, deleteEnvironment)
	add(d, huma.Operation{OperationID: "reopen-environment", Method: http.MethodPost, Path: "/v1/environments/{id}/reopen", Tags: tags,
		Summary: "Let an ended environment give out leases again"}, reopenEnvironment)
}

func listEnvironments(ctx context.Context, service service.Service, _ *empty) (*reply[wire.EnvironmentPage], error) {
	list, err := service.ListEnvironments(ctx)
	return replyWith(wire.EnvironmentPage{Environments: notNil(list)}, err)
}

func putEnvironment(ctx context.Context, service service.Service, in *struct {
	EnvironmentPath
	Body sandbox.PutEnvironment
}) (*reply[sandbox.Environment], error) {
	put := in.Body
	if put.ID != "" && put.ID != in.ID {
		return nil, sandbox.InvalidFields("environment", []sandbox.Field{{Name: "id", Problem: "differs from the id in the path"}})
	}
	put.ID = in.ID
	return replyWith(service.PutEnvironment(ctx, put))
}

func getEnvironment(ctx context.Context, service service.Service, in *EnvironmentPath) (*reply[sandbox.Environment], error) {
	return replyWith(service.GetEnvironment(ctx, in.ID))
}

func deleteEnvironment(ctx context.Context, service service.Service, in *struct {
	EnvironmentPath
	Force bool `query:"force" doc:"End the leases that are still active."`
}) (*empty, error) {
	return nil, service.DeleteEnvironment(ctx, sandbox.DeleteEnvironment{ID: in.ID, Force: in.Force})
}

func reopenEnvironment(ctx context.Context, service service.Service, in *EnvironmentPath) (*reply[sandbox.Environment], error) {
	return replyWith(service.ReopenEnvironment(ctx, in.ID))
}

// notNil makes an empty list [] rather than null.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
