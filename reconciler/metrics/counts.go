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
	// answerWithin limits the wait for counts, so that metrics stay readable when the ledger hangs.
	answerWithin = 750 * time.Millisecond
	// countTimeout limits one count. All waiting readers share its result.
	countTimeout = 5 * time.Second
)

// Source provides the counts.
type Source interface {
	// Counts counts the rows of the ledger.
	Counts(ctx context.Context) (leasing.Counts, error)
	// Reachable returns for each backend whether it is connected. It does not block.
	Reachable() map[sandbox.Backend]bool
}

var (
	ledgerUp = prometheus.NewDesc("sandbox_ledger_up",
		"Whether the ledger could be read: 1 or 0. At 0, the counts of the ledger are missing.", nil, nil)
	sandboxes = prometheus.NewDesc("sandbox_sandboxes",
		"Existing sandboxes by backend and phase. Pooled ones wait for a lease.",
		[]string{"backend", "phase", "pooled"}, nil)
	ending = prometheus.NewDesc("sandbox_destroy_pending_seconds", "Time since the end of the lease whose sandbox has "+
		"waited longest for its destruction. Those kept for a post-mortem do not count.", []string{"backend"}, nil)
	findings = prometheus.NewDesc("sandbox_drift_findings", "Open drift findings between the ledger and the backends.",
		[]string{"kind"}, nil)
	overdue = prometheus.NewDesc("sandbox_overdue_seconds",
		"How long the oldest due work has been waiting.", nil, nil)
	keptBytes = prometheus.NewDesc("sandbox_kept_output_bytes",
		"Stored output of commands and recordings of sessions.", nil, nil)
	keptCount = prometheus.NewDesc("sandbox_kept_output_records", "Commands and sessions with stored output.", nil, nil)
	lostBytes = prometheus.NewDesc("sandbox_dropped_output_bytes_total",
		"Output dropped to make room for newer output, since the creation of the ledger.", nil, nil)
	lostCount = prometheus.NewDesc("sandbox_dropped_output_records_total",
		"Commands and sessions with dropped output, since the creation of the ledger.", nil, nil)
	backends = prometheus.NewDesc("sandbox_backend_up", "Whether a backend is reachable: 1 or 0.", []string{"backend"},
		nil)
)

// counted collects the counts of the ledger.
type counted struct {
	source   Source
	counting singleflight.Group
	log      *slog.Logger
}

// Describe implements prometheus.Collector.
func (*counted) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		ledgerUp, sandboxes, ending, findings, overdue, backends, keptBytes, keptCount, lostBytes, lostCount,
	} {
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
	counts, err := c.counts()
	gauge(ledgerUp, number(err == nil))
	if err != nil {
		c.log.Warn("metrics: counting the rows of the ledger", "error", err)
		return
	}
	for _, s := range counts.Sandboxes {
		gauge(sandboxes, float64(s.N), string(s.Backend), string(s.Phase), strconv.FormatBool(s.Pooled))
	}
	for name, pending := range counts.Ending {
		gauge(ending, pending.Seconds(), string(name))
	}
	for kind, n := range counts.Findings {
		gauge(findings, float64(n), string(kind))
	}
	gauge(overdue, counts.Overdue.Seconds())
	gauge(keptBytes, float64(counts.Kept.Bytes))
	gauge(keptCount, float64(counts.Kept.Records))
	to <- prometheus.MustNewConstMetric(lostBytes, prometheus.CounterValue, float64(counts.Kept.DroppedBytes))
	to <- prometheus.MustNewConstMetric(lostCount, prometheus.CounterValue, float64(counts.Kept.DroppedRecords))
}

// counts returns the result of the running count, or of a new one. A slow count continues, and the next reader may get
// its result.
func (c *counted) counts() (leasing.Counts, error) {
	answer := c.counting.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
		defer cancel()
		return c.source.Counts(ctx)
	})
	select {
	case a := <-answer:
		return a.Val.(leasing.Counts), a.Err //nolint:forcetypeassert // the function above returns nothing else
	case <-time.After(answerWithin):
		return leasing.Counts{}, sandbox.Errorf(sandbox.Unavailable, "counting the rows of the ledger takes longer than %s",
			answerWithin)
	}
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
