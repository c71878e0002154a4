package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (s *server) registerMaintenance(d *document) {
	tags := []string{"maintenance"}
	add(d, huma.Operation{OperationID: "sweep", Method: http.MethodPost, Path: "/v1/sweep", Tags: tags,
		Summary: "Compare every backend with the ledger now, and destroy what no row wants"}, sweep)
	add(d, huma.Operation{OperationID: "audit", Method: http.MethodPost, Path: "/v1/audit", Tags: tags,
		Summary: "Hold every sandbox on its backend against the rules of confinement"}, audit)
	add(d, huma.Operation{OperationID: "adopt", Method: http.MethodPost, Path: "/v1/adopt", Tags: tags,
		Summary: "Take in the sandboxes of a ledger that was emptied, restored or lost"}, adopt)
}

func sweep(ctx context.Context, service service.Service, in *struct{ Body sandbox.SweepRequest }) (*reply[sandbox.SweepReport], error) {
	return replyWith(service.Sweep(ctx, in.Body))
}

func audit(ctx context.Context, service service.Service, in *struct{ Body sandbox.AuditRequest }) (*reply[sandbox.AuditReport], error) {
	return replyWith(service.Audit(ctx, in.Body))
}

func adopt(ctx context.Context, service service.Service, in *struct{ Body sandbox.AdoptRequest }) (*reply[sandbox.AdoptReport], error) {
	return replyWith(service.Adopt(ctx, in.Body))
}
