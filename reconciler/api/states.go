package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (s *server) registerStates(d *document) {
	tags := []string{"states"}
	add(d, huma.Operation{OperationID: "list-states", Method: http.MethodGet, Path: "/v1/states", Tags: tags,
		Summary: "List what is kept of /data, by key"}, listStates)
	add(d, huma.Operation{OperationID: "delete-state", Method: http.MethodDelete, Path: "/v1/states/{key}", Tags: tags,
		Summary: "Forget what is kept under a key: who is next begins anew"}, deleteState)
}

func listStates(ctx context.Context, service service.Service, in *struct {
	EnvironmentID string `query:"environment_id" doc:"Only what was saved in this environment."`
	AgentDID      string `query:"agent_did" doc:"Only what this agent saved."`
	After         string `query:"after" doc:"Continue after this key."`
	Limit         int    `query:"limit" doc:"1 to 1000; default 1000."`
}) (*reply[wire.StatePage], error) {
	states, err := service.ListStates(ctx, sandbox.StateFilter{EnvironmentID: in.EnvironmentID, AgentDID: in.AgentDID, After: in.After, Limit: in.Limit})
	return replyWith(wire.StatePage{States: notNil(states)}, err)
}

func deleteState(ctx context.Context, service service.Service, in *struct {
	Key string `path:"key" doc:"As list-states has it: the lease's id or, where the scope is agent, the agent's DID, followed by @ and the patterns of the tokens whose state it is."`
}) (*empty, error) {
	return nil, service.DeleteState(ctx, in.Key)
}
