// Package metrics counts what a reconciler does and has, for Prometheus. No label holds what a client or an
// operator names: there are as many series as routes, backends and kinds of things.
package metrics

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// ok stands for a step's code where it did what it should.
const ok = "ok"

// Metrics are those of one reconciler. It is safe for concurrent use, and a leasing.Observer.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.HistogramVec
	steps    *prometheus.HistogramVec
	delays   *prometheus.HistogramVec
}

var _ leasing.Observer = (*Metrics)(nil)

// New makes the metrics of a program of this version.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sandbox_http_request_duration_seconds", Help: "How long requests took, streams until their end, by route and status.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60},
		}, []string{"route", "code"}),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sandbox_step_duration_seconds",
			Help:    "How long steps on backends took until they were recorded: spawn, assign, sleep, wake, save and kill. The code is ok or the error's.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120},
		}, []string{"backend", "step", "code"}),
		delays: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sandbox_destroy_delay_seconds", Help: "How long after the end of their lease sandboxes were gone.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
		}, []string{"backend", "ended_by"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "sandbox_build_info", Help: "1, with the version that runs.", ConstLabels: prometheus.Labels{"version": version}})
	build.Set(1)
	m.registry.MustRegister(m.requests, m.steps, m.delays, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Request counts a request; see api.Config.
func (m *Metrics) Request(route string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Observe(took.Seconds())
}

// Stepped implements leasing.Observer.
func (m *Metrics) Stepped(b sandbox.Backend, step string, code sandbox.Code, took time.Duration) {
	label := string(code)
	if label == "" {
		label = ok
	}
	m.steps.WithLabelValues(string(b), step, label).Observe(took.Seconds())
}

// Destroyed implements leasing.Observer.
func (m *Metrics) Destroyed(b sandbox.Backend, endedBy sandbox.EndedBy, after time.Duration) {
	m.delays.WithLabelValues(string(b), string(endedBy)).Observe(after.Seconds())
}

// Handler answers with the metrics, and with a census of what there is, taken at each request.
func (m *Metrics) Handler(census func(context.Context) (leasing.Census, error), log *slog.Logger) http.Handler {
	m.registry.MustRegister(&counted{census: census, log: log})
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), MaxRequestsInFlight: maxReaders})
}

// maxReaders bounds how many censuses are taken at once.
const maxReaders = 4
