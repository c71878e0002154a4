package routes

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/document"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/rights"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (s *Routes) registerReports(d *document.Document) {
	tags := []string{"reports"}
	document.Add(d, sandbox.ScopeRead, huma.Operation{OperationID: "get-costs", Method: http.MethodGet,
		Path: "/v1/costs", Tags: tags,
		Summary: "Report the usage and the costs of sandboxes"}, costs)
	document.Add(d, sandbox.ScopeRead, huma.Operation{OperationID: "list-llm-calls", Method: http.MethodGet,
		Path: "/v1/llm-calls", Tags: tags,
		Summary: "List the model calls with their tokens and costs, latest first"}, llmCalls)
	document.Add(d, sandbox.ScopeRead, huma.Operation{OperationID: "list-drift", Method: http.MethodGet,
		Path: "/v1/drift", Tags: tags,
		Summary: "List drift between the ledger and the backends, newest first"}, drift)
	document.Add(d, sandbox.ScopeRead, huma.Operation{OperationID: "list-deliveries", Method: http.MethodGet,
		Path: "/v1/deliveries", Tags: tags,
		Summary: "List webhook deliveries with their outcome, latest first"}, deliveries)
	document.Add(d, sandbox.ScopeRead, huma.Operation{OperationID: "get-ledger", Method: http.MethodGet,
		Path: "/v1/ledger", Tags: tags,
		Summary: "Identify the ledger"}, ledger)
}

func costs(ctx context.Context, service service.Service, in *struct {
	EnvironmentQuery
	AgentDID string                `query:"agent_did"`
	Labels   sandbox.LabelSelector `query:"labels" doc:"Only leases that have these labels now: key=value or key, separated by commas."`
	From     time.Time             `query:"from" doc:"RFC 3339. Default: the first usage."`
	To       time.Time             `query:"to" doc:"RFC 3339, not before from. Default: now. An earlier time gives the report of that time."`
	GroupBy  sandbox.CostGroup     `query:"group_by" doc:"lease (default), environment, agent, day, month or label:<key>."`
}) (*reply[sandbox.CostReport], error) {
	report, err := service.Costs(ctx, sandbox.CostQuery{
		EnvironmentID: in.EnvironmentID, AgentDID: in.AgentDID, Labels: in.Labels,
		From: in.From, To: in.To, GroupBy: in.GroupBy,
	})
	if !rights.TokenOf(ctx).Allows("") {
		report.Accounts = nil // they cover all environments
	}
	report.Rows, report.Accounts = notNil(report.Rows), notNil(report.Accounts)
	return replyWith(report, err)
}

type driftInput struct {
	EnvironmentID string              `query:"environment_id"`
	LeaseID       string              `query:"lease_id"`
	Kind          sandbox.DriftKind   `query:"kind" doc:"vanished, stopped, out_of_memory, changed, orphan, leftover or usage."`
	Status        sandbox.DriftStatus `query:"status" doc:"open or resolved. Default: both."`
	Limit         int                 `query:"limit" doc:"Page size, 1 to 1000. Default 1000." minimum:"1" maximum:"1000"`
}

// Touches returns the target of the request.
func (in driftInput) Touches() rights.Target { return rights.ReportOn(in.EnvironmentID, in.LeaseID) }

func drift(ctx context.Context, service service.Service, in *driftInput) (*reply[wire.DriftPage], error) {
	findings, err := service.ListDrift(ctx, sandbox.DriftFilter{
		EnvironmentID: in.EnvironmentID, LeaseID: in.LeaseID, Kind: in.Kind, Status: in.Status, Limit: in.Limit,
	})
	return replyWith(wire.DriftPage{Findings: notNil(findings)}, err)
}

type llmCallsInput struct {
	EnvironmentID string `query:"environment_id"`
	LeaseID       string `query:"lease_id"`
	Session       string `query:"session" doc:"Only calls of this session, as the agent itself says."`
	Before        string `query:"before" doc:"next_before of the previous page. Or an RFC 3339 time: only calls that began before it."`
	Limit         int    `query:"limit" doc:"Page size, 1 to 1000. Default 100." minimum:"1" maximum:"1000"`
}

// Touches returns the target of the request.
func (in llmCallsInput) Touches() rights.Target { return rights.ReportOn(in.EnvironmentID, in.LeaseID) }

func llmCalls(ctx context.Context, service service.Service, in *llmCallsInput) (*reply[wire.LLMCallPage], error) {
	calls, err := service.ListLLMCalls(ctx, sandbox.LLMCallQuery{
		EnvironmentID: in.EnvironmentID, LeaseID: in.LeaseID, Session: in.Session, Before: in.Before, Limit: in.Limit,
	})
	page := wire.LLMCallPage{Calls: notNil(calls)}
	if n := len(calls); n > 0 && n >= cmp.Or(in.Limit, sandbox.DefaultLLMCalls) {
		page.NextBefore = calls[n-1].Cursor()
	}
	return replyWith(page, err)
}

func deliveries(ctx context.Context, service service.Service, in *struct {
	ID string `query:"id" doc:"Only the message with this id of its sender."`
	EnvironmentQuery
	Status sandbox.DeliveryStatus `query:"status" doc:"applied, stale or unmatched. Default: all."`
	Before string                 `query:"before" doc:"next_before of the previous page."`
	Limit  int                    `query:"limit" doc:"Page size, 1 to 100. Default 100." minimum:"1" maximum:"100"`
}) (*reply[wire.DeliveryPage], error) {
	list, err := service.ListDeliveries(ctx, sandbox.DeliveryFilter{
		ID: in.ID, EnvironmentID: in.EnvironmentID, Status: in.Status, Before: in.Before, Limit: in.Limit,
	})
	page := wire.DeliveryPage{Deliveries: notNil(list)}
	if n := len(list); n > 0 && n >= cmp.Or(in.Limit, sandbox.MaxDeliveryPage) {
		page.NextBefore = list[n-1].Cursor()
	}
	return replyWith(page, err)
}

func ledger(ctx context.Context, service service.Service, _ *unlimited) (*reply[sandbox.LedgerInfo], error) {
	return replyWith(service.Ledger(ctx))
}
