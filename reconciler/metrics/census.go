package metrics

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// answerWithin bounds the wait for a census: what hangs is just what the metrics are read for.
	answerWithin = 750 * time.Millisecond
	// censusTimeout bounds a census, whose answer is shared by all who wait for it.
	censusTimeout = 5 * time.Second
)

// Source is what is counted.
type Source interface {
	// Census counts what is on the ledger.
	Census(ctx context.Context) (leasing.Census, error)
	// Reachable says of each backend whether it is connected, at once.
	Reachable() map[sandbox.Backend]bool
}

var (
	ledgerUp  = prometheus.NewDesc("sandbox_ledger_up", "Whether the ledger could be read: 1 or 0. Without it what is counted on it is missing.", nil, nil)
	sandboxes = prometheus.NewDesc("sandbox_sandboxes", "Sandboxes that are not gone, by backend and phase. Those that are pooled wait for a lease.",
		[]string{"backend", "phase", "pooled"}, nil)
	ending = prometheus.NewDesc("sandbox_destroy_pending_seconds", "For how long the lease of the sandbox has ended that is to go for longest and is not gone. Those kept for a post-mortem do not count.",
		[]string{"backend"}, nil)
	findings  = prometheus.NewDesc("sandbox_drift_findings", "Open differences between ledger and backends.", []string{"kind"}, nil)
	overdue   = prometheus.NewDesc("sandbox_overdue_seconds", "For how long work has waited that could be done now.", nil, nil)
	keptBytes = prometheus.NewDesc("sandbox_kept_output_bytes", "What is kept of the output of commands and of the recordings of sessions.", nil, nil)
	keptCount = prometheus.NewDesc("sandbox_kept_output_records", "Commands and sessions whose output is kept.", nil, nil)
	lostBytes = prometheus.NewDesc("sandbox_dropped_output_bytes_total", "Output that was dropped because newer output took its room, since the ledger was made.", nil, nil)
	lostCount = prometheus.NewDesc("sandbox_dropped_output_records_total", "Commands and sessions whose output was dropped, since the ledger was made.", nil, nil)
	backends  = prometheus.NewDesc("sandbox_backend_up", "Whether a backend answers: 1 or 0.", []string{"backend"}, nil)
)

// counted is what the ledger counts.
type counted struct {
	source   Source
	censuses singleflight.Group
	log      *slog.Logger
}

// Describe implements prometheus.Collector.
func (*counted) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{ledgerUp, sandboxes, ending, findings, overdue, backends, keptBytes, keptCount, lostBytes, lostCount} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *counted) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for name, up := range c.source.Reachable() {
		gauge(backends, number(up), string(name))
	}
	census, err := c.census()
	gauge(ledgerUp, number(err == nil))
	if err != nil {
		c.log.Warn("metrics: counting what is on the ledger", "error", err)
		return
	}
	for _, s := range census.Sandboxes {
		gauge(sandboxes, float64(s.N), string(s.Backend), string(s.Phase), strconv.FormatBool(s.Pooled))
	}
	for name, pending := range census.Ending {
		gauge(ending, pending.Seconds(), string(name))
	}
	for kind, n := range census.Findings {
		gauge(findings, float64(n), string(kind))
	}
	gauge(overdue, census.Overdue.Seconds())
	gauge(keptBytes, float64(census.Kept.Bytes))
	gauge(keptCount, float64(census.Kept.Records))
	to <- prometheus.MustNewConstMetric(lostBytes, prometheus.CounterValue, float64(census.Kept.DroppedBytes))
	to <- prometheus.MustNewConstMetric(lostCount, prometheus.CounterValue, float64(census.Kept.DroppedRecords))
}

// census returns the census under way, or a new one. One that takes too long goes on: the next reader may have its answer.
func (c *counted) census() (leasing.Census, error) {
	answer := c.censuses.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), censusTimeout)
		defer cancel()
		return c.source.Census(ctx)
	})
	select {
	case a := <-answer:
		return a.Val.(leasing.Census), a.Err //nolint:forcetypeassert // the function above returns nothing else
	case <-time.After(answerWithin):
		return leasing.Census{}, sandbox.Errorf(sandbox.Unavailable, "counting what is on the ledger takes longer than %s", answerWithin)
	}
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
