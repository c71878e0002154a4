package routes

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/document"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/rights"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (s *Routes) registerStates(d *document.Document) {
	tags := []string{"states"}
	document.Add(d, sandbox.ScopeRead, huma.Operation{OperationID: "list-states", Method: http.MethodGet,
		Path: "/v1/states", Tags: tags,
		Summary: "List snapshots of /data, by key"}, listStates)
	document.Add(d, sandbox.ScopeAdmin, huma.Operation{OperationID: "delete-state", Method: http.MethodDelete,
		Path: "/v1/states/{key}", Tags: tags,
		Summary: "Delete the snapshot with a key; the next lease with that key starts empty"}, deleteState)
}

type listStatesInput struct {
	EnvironmentID string `query:"environment_id" doc:"Only snapshots saved in this environment."`
	AgentDID      string `query:"agent_did" doc:"Only snapshots of this agent."`
	After         string `query:"after" doc:"Continue after this key."`
	Limit         int    `query:"limit" doc:"Page size, 1 to 1000. Default 1000." minimum:"1" maximum:"1000"`
}

// Touches returns the target of the request.
func (in listStatesInput) Touches() rights.Target { return rights.Environment(in.EnvironmentID) }

func listStates(ctx context.Context, service service.Service, in *listStatesInput) (*reply[wire.StatePage], error) {
	states, err := service.ListSnapshots(ctx,
		sandbox.SnapshotFilter{EnvironmentID: in.EnvironmentID, AgentDID: in.AgentDID, After: in.After, Limit: in.Limit})
	return replyWith(wire.StatePage{States: notNil(states)}, err)
}

type deleteStateInput struct {
	Key string `path:"key" doc:"A key as in list-states: the lease's id or, with the scope agent, the agent's DID, then @ and the environment patterns of the tokens that own the snapshot."`
}

// Touches returns the target of the request.
func (deleteStateInput) Touches() rights.Target { return rights.Everything("deleting a snapshot") }

func deleteState(ctx context.Context, service service.Service, in *deleteStateInput) (*empty, error) {
	return nil, service.DeleteSnapshot(ctx, in.Key)
}
