package metrics_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/counts"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/loop"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/metrics"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// counted is a source with one backend whose counts come from a function.
type counted struct {
	counts func(ctx context.Context) (leasing.Counts, error)
	up     bool
}

func (c counted) Counts(ctx context.Context) (leasing.Counts, error) { return c.counts(ctx) }

func (c counted) Reachable() map[sandbox.Backend]bool {
	return map[sandbox.Backend]bool{sandbox.Docker: c.up}
}

// busy is a reconciler with objects of each kind.
var busy = counted{up: true, counts: func(context.Context) (leasing.Counts, error) {
	return leasing.Counts{
		Sandboxes: []counts.Group{
			{Backend: sandbox.Docker, Phase: sandbox.PhaseAwake, N: 7},
			{Backend: sandbox.Docker, Phase: sandbox.PhaseAsleep, Pooled: true, N: 2},
		},
		Ending:   map[sandbox.Backend]time.Duration{sandbox.Docker: 1500 * time.Millisecond},
		Findings: map[sandbox.DriftKind]int64{sandbox.DriftOrphan: 3},
		Kept:     ledger.KeptSum{Bytes: 4096, Records: 4, DroppedBytes: 8192, DroppedRecords: 8},
		Overdue:  90 * time.Second,
	}, nil
}}

// scrape reads the metrics of a reconciler that has done work of each kind.
func scrape(t *testing.T, source metrics.Source) string {
	t.Helper()
	m := metrics.New("1.2.3")
	m.WatchLedger(func() (storage.Fault, error) { return storage.FaultFull, errors.New("no room") })
	m.RequestBegan("GET /v1/leases")
	m.RequestEnded("GET /v1/leases", 200, 3*time.Millisecond)
	m.RequestBegan("")
	m.RequestEnded("", 404, time.Millisecond)
	m.RequestBegan("GET /v1/events")
	m.RequestRefused(sandbox.ReasonTokenUnknown)
	m.RequestRefused("a reason that no request is refused for")
	m.ConditionReceived(string(sandbox.DeliveryApplied))
	m.ConditionReceived(string(sandbox.Unavailable))
	m.ConditionMisspelled()
	m.PassBegan(loop.PassResync, sandbox.Docker)
	m.PassEnded(loop.PassResync, sandbox.Docker, errors.New("away"))
	m.Stepped(sandbox.Docker, "spawn", "", 200*time.Millisecond)
	m.Stepped(sandbox.Docker, "kill", sandbox.Unavailable, time.Second)
	m.Destroyed(sandbox.Docker, sandbox.EndedByCondition, 43*time.Millisecond)
	m.LLMCallEnded(sandbox.LLMCall{Outcome: sandbox.LLMCompleted, Cost: sandbox.USD / 4,
		Tokens: sandbox.LLMTokens{Input: 1, CachedInput: 2, CacheWrite: 3, Output: 4}})
	m.LLMCallEnded(sandbox.LLMCall{Outcome: sandbox.LLMInterrupted, Cost: 2 * sandbox.USD, Unknown: true})
	answer := httptest.NewRecorder()
	m.Handler(source, slog.New(slog.DiscardHandler)).ServeHTTP(answer,
		httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	body, err := io.ReadAll(answer.Result().Body)
	if err != nil || answer.Code != 200 {
		t.Fatalf("%d: %v", answer.Code, err)
	}
	return string(body)
}

func TestMetricsAreNamedByConvention(t *testing.T) {
	t.Parallel()
	text := scrape(t, busy)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) != 0 {
		t.Errorf("%+v: %v", problems, err)
	}
	for _, want := range []string{
		`sandbox_http_request_duration_seconds_count{code="200",route="GET /v1/leases"} 1`,
		`sandbox_http_request_duration_seconds_count{code="404",route="none"} 1`,
		`sandbox_ledger_fault{fault="full"} 1`,
		`sandbox_ledger_fault{fault="lost"} 0`,
		`sandbox_http_requests_in_flight{route="GET /v1/events"} 1`,
		`sandbox_http_requests_in_flight{route="GET /v1/leases"} 0`,
		`sandbox_http_refusals_total{reason="token_unknown"} 1`,
		`sandbox_http_refusals_total{reason="signature_wrong"} 0`,
		`sandbox_conditions_total{verdict="applied"} 1`,
		`sandbox_conditions_total{verdict="unavailable"} 1`,
		`sandbox_conditions_total{verdict="duplicate"} 0`,
		`sandbox_conditions_misspelled_total 1`,
		`sandbox_loop_failures_total{backend="docker",pass="resync"} 1`,
		`sandbox_destroy_pending_seconds{backend="docker"} 1.5`,
		`sandbox_step_duration_seconds_count{backend="docker",code="ok",step="spawn"} 1`,
		`sandbox_step_duration_seconds_count{backend="docker",code="unavailable",step="kill"} 1`,
		`sandbox_destroy_delay_seconds_bucket{backend="docker",ended_by="condition",le="0.05"} 1`,
		`sandbox_llm_calls_total{outcome="completed"} 1`,
		`sandbox_llm_calls_total{outcome="rejected"} 0`,
		`sandbox_llm_tokens_total{kind="cached_input"} 2`,
		`sandbox_llm_tokens_total{kind="output"} 4`,
		`sandbox_llm_cost_usd_total{use="known"} 0.25`,
		`sandbox_llm_cost_usd_total{use="unknown"} 2`,
		`sandbox_sandboxes{backend="docker",phase="awake",pooled="false"} 7`,
		`sandbox_sandboxes{backend="docker",phase="asleep",pooled="true"} 2`,
		`sandbox_drift_findings{kind="orphan"} 3`,
		`sandbox_kept_output_bytes 4096`,
		`sandbox_kept_output_records 4`,
		`sandbox_dropped_output_bytes_total 8192`,
		`sandbox_dropped_output_records_total 8`,
		`sandbox_overdue_seconds 90`,
		`sandbox_backend_up{backend="docker"} 1`,
		`sandbox_ledger_up 1`,
		`sandbox_build_info{version="1.2.3"} 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("there is no %s", want)
		}
	}
}

func TestMetricsSayThatTheLedgerIsAway(t *testing.T) {
	t.Parallel()
	text := scrape(t, counted{counts: func(context.Context) (leasing.Counts, error) {
		return leasing.Counts{}, errors.New("the disk is full")
	}})
	for _, want := range []string{
		"sandbox_ledger_up 0", `sandbox_backend_up{backend="docker"} 0`, `sandbox_step_duration_seconds_count{`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s", want)
		}
	}
	if strings.Contains(text, "a reason") {
		t.Error("a label holds a client's text")
	}
	if strings.Contains(text, "sandbox_sandboxes{") {
		t.Error("sandboxes are counted although the ledger was away")
	}
}

// TestMetricsAreAnsweredWhileTheLedgerHangs: its counts never end, so at most one runs.
func TestMetricsAreAnsweredWhileTheLedgerHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var under atomic.Int64
		answers := make(chan struct{})
		source := counted{up: true, counts: func(context.Context) (leasing.Counts, error) {
			under.Add(1)
			<-answers
			return leasing.Counts{}, errors.New("the disk is gone")
		}}
		handler := metrics.New("1.2.3").Handler(source, slog.New(slog.DiscardHandler))
		began := time.Now()
		var readers sync.WaitGroup
		for range 3 {
			readers.Go(func() {
				answer := httptest.NewRecorder()
				handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
				for _, want := range []string{"\nsandbox_ledger_up 0\n", "\n" + `sandbox_backend_up{backend="docker"} 1` + "\n"} {
					if !strings.Contains(answer.Body.String(), want) {
						t.Errorf("there is no %q", want)
					}
				}
			})
		}
		readers.Wait()
		if took := time.Since(began); took > time.Second || under.Load() != 1 {
			t.Errorf("answered after %s, with %d counts", took, under.Load())
		}
		close(answers)
	})
}
