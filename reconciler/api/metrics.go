package api

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/document"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/rights"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const metricsPath = "/metrics"

// registerMetrics adds the endpoint for Prometheus. Its metrics cover all environments.
func (s *server) registerMetrics(d *document.Document) {
	if s.metrics == nil {
		return
	}
	s.mux.HandleFunc("GET "+metricsPath, func(w http.ResponseWriter, r *http.Request) {
		if err := rights.Check(r.Context(), rights.TokenOf(r.Context()), rights.Everything("reading metrics")); err != nil {
			s.refuse(w, r, err)
			return
		}
		s.metrics.ServeHTTP(w, r)
	})
	d.API.OpenAPI().AddOperation(&huma.Operation{OperationID: "metrics", Method: http.MethodGet, Path: metricsPath,
		Security: d.Needs(sandbox.ScopeRead, "metrics", "GET "+metricsPath),
		Summary:  "Read metrics in the Prometheus text format", Tags: []string{"probes"},
		Responses: map[string]*huma.Response{
			"200": {Description: "The metrics."},
			"401": {Description: "The token is missing or wrong."},
			"403": {Description: "The token lacks the scope read, or is limited to some environments."},
		}})
}
