package api

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

const metricsPath = "/metrics"

// registerMetrics adds what Prometheus reads. It counts what concerns all environments.
func (s *server) registerMetrics(d *document) {
	if s.metrics == nil {
		return
	}
	s.mux.HandleFunc("GET "+metricsPath, func(w http.ResponseWriter, r *http.Request) {
		if service, ok := r.Context().Value(serviceKey).(scoped); ok {
			if err := service.everything("reading metrics"); err != nil {
				s.refuse(w, r, err)
				return
			}
		}
		s.metrics.ServeHTTP(w, r)
	})
	d.api.OpenAPI().AddOperation(&huma.Operation{OperationID: "metrics", Method: http.MethodGet, Path: metricsPath,
		Security: d.needs("metrics", "GET "+metricsPath),
		Summary:  "Read what the reconciler counts, in the text format of Prometheus", Tags: []string{"probes"},
		Responses: map[string]*huma.Response{"200": {Description: "The metrics."}, "401": {Description: "The token is missing or wrong."},
			"403": {Description: "The token has not the scope read, or is limited to some environments."}}})
}
