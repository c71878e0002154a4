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
	add(d, sandbox.ScopeRead, huma.Operation{OperationID: "list-states", Method: http.MethodGet,
		Path: "/v1/states", Tags: tags,
		Summary: "List snapshots of /data, by key"}, listStates)
	add(d, sandbox.ScopeAdmin, huma.Operation{OperationID: "delete-state", Method: http.MethodDelete,
		Path: "/v1/states/{key}", Tags: tags,
		Summary: "Delete the snapshot with a key; the next lease with that key starts empty"}, deleteState)
}

type listStatesInput struct {
	EnvironmentID string `query:"environment_id" doc:"Only snapshots saved in this environment."`
	AgentDID      string `query:"agent_did" doc:"Only snapshots of this agent."`
	After         string `query:"after" doc:"Continue after this key."`
	Limit         int    `query:"limit" doc:"1 to 1000; default 1000."`
}

func (in listStatesInput) touches() Target { return Environment(in.EnvironmentID) }

func listStates(ctx context.Context, service service.Service, in *listStatesInput) (*reply[wire.StatePage], error) {
	states, err := service.ListSnapshots(ctx,
		sandbox.SnapshotFilter{EnvironmentID: in.EnvironmentID, AgentDID: in.AgentDID, After: in.After, Limit: in.Limit})
	return replyWith(wire.StatePage{States: notNil(states)}, err)
}

type deleteStateInput struct {
	Key string `path:"key" doc:"A key as in list-states: the lease's id or, with the scope agent, the agent's DID, then @ and the environment patterns of the tokens that own the snapshot."`
}

func (deleteStateInput) touches() Target { return Everything("deleting a snapshot") }

func deleteState(ctx context.Context, service service.Service, in *deleteStateInput) (*empty, error) {
	return nil, service.DeleteSnapshot(ctx, in.Key)
}
