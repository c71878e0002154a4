// Package metrics provides metrics of a reconciler for Prometheus. No label holds names chosen by clients or operators,
// so the number of series is bounded by the routes, backends and kinds of objects.
package metrics

import (
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/llm"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/loop"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// ok is the code of a successful step.
	ok = "ok"
	// noRoute is the route of a request for an unknown path.
	noRoute = "none"
)

// refusals are the reasons for rejected requests, and verdicts the outcomes of stored conditions. Their series start at
// 0, as those of LLM calls do, so that rate functions see the first increase.
var (
	refusals = []sandbox.Reason{
		sandbox.ReasonTokenMissing, sandbox.ReasonTokenUnknown, sandbox.ReasonTokenExpired, sandbox.ReasonTokenRevoked,
		sandbox.ReasonSignatureWrong, sandbox.ReasonLoginEnded, sandbox.ReasonScopeMissing,
		sandbox.ReasonEnvironmentNotAllowed, sandbox.ReasonRateLimited,
	}
	verdicts = []string{
		string(sandbox.DeliveryApplied), string(sandbox.DeliveryUnmatched), string(sandbox.DeliveryStale), api.Duplicate,
	}
)

// Metrics holds the metrics of one reconciler and observes its parts. It is safe for concurrent use.
type Metrics struct {
	registry   *prometheus.Registry
	requests   *prometheus.HistogramVec
	inFlight   *prometheus.GaugeVec
	refused    map[sandbox.Reason]prometheus.Counter
	conditions *prometheus.CounterVec
	misspelled prometheus.Counter
	steps      *prometheus.HistogramVec
	delays     *prometheus.HistogramVec
	passed     *prometheus.GaugeVec
	failed     *prometheus.CounterVec
	llmCalls   *prometheus.CounterVec
	llmTokens  *prometheus.CounterVec
	llmCost    *prometheus.CounterVec
}

var (
	_ lifecycle.Observer = (*Metrics)(nil)
	_ llm.Observer       = (*Metrics)(nil)
	_ api.Observer       = (*Metrics)(nil)
	_ loop.Observer      = (*Metrics)(nil)
)

// New returns the metrics of a program with this version.
func New(version string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	factory := promauto.With(m.registry)
	m.makeRequests(factory)
	m.makeConditions(factory)
	m.makeLifecycle(factory)
	m.makeLoop(factory)
	m.makeLLM(factory)
	factory.NewGauge(prometheus.GaugeOpts{
		Name:        "sandbox_build_info",
		Help:        "1, with the running version.",
		ConstLabels: prometheus.Labels{"version": version},
	}).Set(1)
	m.registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *Metrics) makeRequests(factory promauto.Factory) {
	m.requests = factory.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "sandbox_http_request_duration_seconds",
		Help:    "Duration of requests by route and status. Streams last until their end.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60},
	}, []string{"route", "code"})
	m.inFlight = factory.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sandbox_http_requests_in_flight",
		Help: "Running requests by route. On the routes of events and live pages, they are the followers.",
	}, []string{"route"})
	refused := factory.NewCounterVec(prometheus.CounterOpts{
		Name: "sandbox_http_refusals_total",
		Help: "Requests rejected for their credentials or a rate limit, by reason.",
	}, []string{"reason"})
	m.refused = map[sandbox.Reason]prometheus.Counter{}
	for _, r := range refusals {
		m.refused[r] = refused.WithLabelValues(string(r))
	}
}

func (m *Metrics) makeConditions(factory promauto.Factory) {
	m.conditions = factory.NewCounterVec(prometheus.CounterOpts{
		Name: "sandbox_conditions_total",
		Help: "Received conditions by outcome: applied, unmatched, stale or duplicate, or the code of the error.",
	}, []string{"verdict"})
	for _, v := range verdicts {
		m.conditions.WithLabelValues(v)
	}
	m.misspelled = factory.NewCounter(prometheus.CounterOpts{
		Name: "sandbox_conditions_misspelled_total",
		Help: "Unmatched conditions whose type is close to one on which leases of the environment end.",
	})
}

func (m *Metrics) makeLifecycle(factory promauto.Factory) {
	m.steps = factory.NewHistogramVec(prometheus.HistogramOpts{
		Name: "sandbox_step_duration_seconds",
		Help: "Duration of steps on backends until they were recorded: spawn, assign, sleep, wake, save and kill. " +
			"The code is ok or the code of the error.",
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120},
	}, []string{"backend", "step", "code"})
	m.delays = factory.NewHistogramVec(prometheus.HistogramOpts{
		Name: "sandbox_destroy_delay_seconds", Help: "Time from the end of a lease to the destruction of its sandbox.",
		Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
	}, []string{"backend", "ended_by"})
}

func (m *Metrics) makeLoop(factory promauto.Factory) {
	m.passed = factory.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sandbox_loop_last_success_timestamp_seconds",
		Help: "Time of the last successful pass of the loop, or of the start of the loop. Passes over a " +
			"backend have its name.",
	}, []string{"pass", "backend"})
	m.failed = factory.NewCounterVec(prometheus.CounterOpts{
		Name: "sandbox_loop_failures_total", Help: "Failed passes of the loop. They are retried.",
	}, []string{"pass", "backend"})
}

func (m *Metrics) makeLLM(factory promauto.Factory) {
	m.llmCalls = factory.NewCounterVec(prometheus.CounterOpts{
		Name: "sandbox_llm_calls_total",
		Help: "Recorded LLM calls by outcome: completed, rejected, unsent or interrupted.",
	}, []string{"outcome"})
	for _, outcome := range sandbox.LLMOutcomes {
		m.llmCalls.WithLabelValues(string(outcome))
	}
	m.llmTokens = factory.NewCounterVec(prometheus.CounterOpts{
		Name: "sandbox_llm_tokens_total",
		Help: "Tokens of recorded LLM calls by kind: input, cached_input, cache_write or output.",
	}, []string{"kind"})
	m.llmCost = factory.NewCounterVec(prometheus.CounterOpts{
		Name: "sandbox_llm_cost_usd_total",
		Help: "Cost of recorded LLM calls at list price in US dollars. Calls whose use is unknown cost what was " +
			"reserved for them, with use=\"unknown\".",
	}, []string{"use"})
	m.addLLM(sandbox.LLMCall{})
	m.addLLM(sandbox.LLMCall{Unknown: true})
}

func routeLabel(route string) string {
	if route == "" {
		return noRoute
	}
	return route
}

// The methods of api.Observer.

func (m *Metrics) RequestBegan(route string) { m.inFlight.WithLabelValues(routeLabel(route)).Inc() }

func (m *Metrics) RequestEnded(route string, status int, took time.Duration) {
	m.inFlight.WithLabelValues(routeLabel(route)).Dec()
	m.requests.WithLabelValues(routeLabel(route), strconv.Itoa(status)).Observe(took.Seconds())
}

func (m *Metrics) RequestRefused(reason sandbox.Reason) {
	if counter, known := m.refused[reason]; known {
		counter.Inc()
	}
}

func (m *Metrics) ConditionReceived(verdict string) { m.conditions.WithLabelValues(verdict).Inc() }

func (m *Metrics) ConditionMisspelled() { m.misspelled.Inc() }

// The methods of lifecycle.Observer.

func (m *Metrics) Stepped(b sandbox.Backend, step string, code sandbox.Code, took time.Duration) {
	label := string(code)
	if label == "" {
		label = ok
	}
	m.steps.WithLabelValues(string(b), step, label).Observe(took.Seconds())
}

func (m *Metrics) Destroyed(b sandbox.Backend, endedBy sandbox.EndedBy, after time.Duration) {
	m.delays.WithLabelValues(string(b), string(endedBy)).Observe(after.Seconds())
}

// LLMCallEnded implements llm.Observer.
func (m *Metrics) LLMCallEnded(c sandbox.LLMCall) {
	m.llmCalls.WithLabelValues(string(c.Outcome)).Inc()
	m.addLLM(c)
}

// addLLM adds the usage of a call.
func (m *Metrics) addLLM(c sandbox.LLMCall) {
	m.llmTokens.WithLabelValues("input").Add(float64(c.Tokens.Input))
	m.llmTokens.WithLabelValues("cached_input").Add(float64(c.Tokens.CachedInput))
	m.llmTokens.WithLabelValues("cache_write").Add(float64(c.Tokens.CacheWrite))
	m.llmTokens.WithLabelValues("output").Add(float64(c.Tokens.Output))
	use := "known"
	if c.Unknown {
		use = "unknown"
	}
	m.llmCost.WithLabelValues(use).Add(float64(c.Cost) / float64(sandbox.USD))
}

// The methods of loop.Observer.

func (m *Metrics) PassBegan(pass string, b sandbox.Backend) {
	m.passed.WithLabelValues(pass, string(b)).SetToCurrentTime()
	m.failed.WithLabelValues(pass, string(b))
}

func (m *Metrics) PassEnded(pass string, b sandbox.Backend, err error) {
	if err != nil {
		m.failed.WithLabelValues(pass, string(b)).Inc()
		return
	}
	m.passed.WithLabelValues(pass, string(b)).SetToCurrentTime()
}

// Handler serves the metrics, with fresh counts at each request.
func (m *Metrics) Handler(source Source, log *slog.Logger) http.Handler {
	m.registry.MustRegister(&counted{source: source, log: log})
	return promhttp.HandlerFor(m.registry,
		promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), MaxRequestsInFlight: maxReaders})
}

// WatchLedger adds a gauge for each fault of the ledger. At most one of them is 1.
func (m *Metrics) WatchLedger(fault func() (storage.Fault, error)) {
	for _, f := range storage.Faults {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "sandbox_ledger_fault",
			Help:        "1 while the ledger has this fault: lost, damaged, full or read_only. Writes then fail.",
			ConstLabels: prometheus.Labels{"fault": string(f)},
		}, func() float64 {
			if now, _ := fault(); now == f {
				return 1
			}
			return 0
		}))
	}
}

// maxReaders limits concurrent requests for metrics.
const maxReaders = 4
