package routes

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/document"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/rights"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (s *Routes) registerMaintenance(d *document.Document) {
	tags := []string{"maintenance"}
	document.Add(d, sandbox.ScopeAdmin, huma.Operation{OperationID: "sweep", Method: http.MethodPost,
		Path: "/v1/sweep", Tags: tags,
		Summary: "Compare every backend with the ledger now, and destroy orphans"}, sweep)
	document.Add(d, sandbox.ScopeRead, huma.Operation{OperationID: "audit", Method: http.MethodPost,
		Path: "/v1/audit", Tags: tags,
		Summary: "Check every sandbox on its backend against the confinement rules"}, audit)
	document.Add(d, sandbox.ScopeAdmin, huma.Operation{OperationID: "adopt", Method: http.MethodPost,
		Path: "/v1/adopt", Tags: tags,
		Summary: "Adopt the sandboxes of a ledger that was emptied, restored or lost"}, adopt)
}

type sweepInput struct{ Body sandbox.SweepRequest }

// Touches returns the target of the request.
func (sweepInput) Touches() rights.Target { return rights.Everything("sweep") }

func sweep(ctx context.Context, service service.Service, in *sweepInput) (*reply[sandbox.SweepReport], error) {
	return replyWith(service.Sweep(ctx, in.Body))
}

type auditInput struct{ Body sandbox.AuditRequest }

// Touches returns the target of the request.
func (in auditInput) Touches() rights.Target { return rights.Environment(in.Body.EnvironmentID) }

func audit(ctx context.Context, service service.Service, in *auditInput) (*reply[sandbox.AuditReport], error) {
	return replyWith(service.Audit(ctx, in.Body))
}

type adoptInput struct{ Body sandbox.AdoptRequest }

// Touches returns the target of the request.
func (adoptInput) Touches() rights.Target { return rights.Everything("adopt") }

func adopt(ctx context.Context, service service.Service, in *adoptInput) (*reply[sandbox.AdoptReport], error) {
	return replyWith(service.Adopt(ctx, in.Body))
}
