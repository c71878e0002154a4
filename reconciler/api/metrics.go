package api

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const metricsPath = "/metrics"

// registerMetrics adds the endpoint for Prometheus. Its metrics cover all environments.
func (s *server) registerMetrics(d *document) {
	if s.metrics == nil {
		return
	}
	s.mux.HandleFunc("GET "+metricsPath, func(w http.ResponseWriter, r *http.Request) {
		if err := permit(r.Context(), tokenOfCaller(r.Context()), Everything("reading metrics")); err != nil {
			s.refuse(w, r, err)
			return
		}
		s.metrics.ServeHTTP(w, r)
	})
	d.api.OpenAPI().AddOperation(&huma.Operation{OperationID: "metrics", Method: http.MethodGet, Path: metricsPath,
		Security: d.needs(sandbox.ScopeRead, "metrics", "GET "+metricsPath),
		Summary:  "Read metrics in the Prometheus text format", Tags: []string{"probes"},
		Responses: map[string]*huma.Response{
			"200": {Description: "The metrics."},
			"401": {Description: "The token is missing or wrong."},
			"403": {Description: "The token lacks the scope read, or is limited to some environments."},
		}})
}
