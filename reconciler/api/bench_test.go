package api_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// BenchmarkConditions measures the whole path of a signed condition, from its sender to the disk.
func BenchmarkConditions(b *testing.B) {
	for name, newLedger := range map[string]func(testing.TB) string{
		"SQLite":     func(tb testing.TB) string { return "sqlite://" + filepath.Join(tb.TempDir(), "ledger.db") },
		"PostgreSQL": func(tb testing.TB) string { return postgrestest.New(tb) },
	} {
		b.Run(name, func(b *testing.B) {
			b.Run("clients=64", func(b *testing.B) { newReceiver(b, newLedger(b)).receive(b, 64, finished) })
			b.Run("clients=1", func(b *testing.B) { newReceiver(b, newLedger(b)).receive(b, 1, finished) })
			b.Run("clients=64/ending", func(b *testing.B) {
				r := newReceiver(b, newLedger(b))
				r.lease(b, b.N)
				r.receive(b, 64, death)
			})
		})
	}
}

// finished is a condition that matches nothing.
func finished(int64) string { return `"type":"game.finished","data":{"environment_id":"catan-7"}` }

// death is the condition that ends the nth agent's lease.
func death(n int64) string {
	return fmt.Sprintf(`"type":"agent.death","data":{"environment_id":"quest","agent_did":"did:plc:%d"}`, n)
}

// receiver is a reconciler's API on a ledger on disk, and a game server that calls it.
type receiver struct {
	store  *ledger.Store
	engine *leasing.Service
	secret webhook.Secret
	url    string
	client *http.Client
}

func newReceiver(b *testing.B, ledgerURL string) *receiver {
	b.Helper()
	store, err := ledger.Open(b.Context(), ledgerURL, ledger.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	engine, err := leasing.New(leasing.Config{Store: store, Executors: []driver.Executor{fake.New("engine-1", nil)}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = engine.Close() })
	secret, err := webhook.ParseSecret(webhook.NewSecret())
	if err != nil {
		b.Fatal(err)
	}
	token, err := access.MakeToken("bench", access.NewToken())
	if err != nil {
		b.Fatal(err)
	}
	handler, err := api.New(api.Config{Service: engine, Tokens: []access.Token{token}, Secrets: webhook.Secrets{secret}})
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewServer(handler)
	b.Cleanup(server.Close)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	b.Cleanup(client.CloseIdleConnections)
	return &receiver{store: store, engine: engine, secret: secret, url: server.URL + "/v1/conditions", client: client}
}

// lease acquires leases for n agents that end with their death.
func (r *receiver) lease(b *testing.B, n int) {
	b.Helper()
	_, err := r.engine.PutEnvironment(b.Context(), sandbox.PutEnvironment{ID: "quest", Owner: "bench",
		EnvironmentSpec: sandbox.EnvironmentSpec{Type: sandbox.TypeRPG, Image: "player", Network: sandbox.NetworkNone}})
	if err != nil {
		b.Fatal(err)
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				_, err := r.engine.Acquire(b.Context(),
					sandbox.Acquire{AgentDID: fmt.Sprintf("did:plc:%d", i), EnvironmentID: "quest", Owner: "bench"})
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// receive sends b.N conditions from several clients, each of which waits for its reply. It reports how many were stored
// per second and how long one took.
func (r *receiver) receive(b *testing.B, clients int, condition func(n int64) string) {
	took := make([]time.Duration, b.N+1)
	var n atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	spent := cpuTime(b)
	for range clients {
		wg.Go(func() {
			for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
				began := time.Now()
				if err := r.send(b, i, condition(i)); err != nil {
					b.Error(err)
					return
				}
				took[i] = time.Since(began)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	spent = cpuTime(b) - spent
	took = took[1:]
	slices.Sort(took)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "receipts/s")
	b.ReportMetric(float64(spent.Microseconds())/float64(b.N), "cpu-µs/receipt")
	b.ReportMetric(took[len(took)/2].Seconds()*1e3, "p50-ms")
	b.ReportMetric(took[len(took)*99/100].Seconds()*1e3, "p99-ms")
}

// cpuTime returns the CPU time of this process, including the senders. Unlike elapsed time, it shows the cost of a
// receipt on a busy machine.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func (r *receiver) send(b *testing.B, n int64, condition string) error {
	body := fmt.Appendf(nil, `{"timestamp":%q,%s}`, time.Now().Format(time.RFC3339Nano), condition)
	req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if err := r.secret.Sign(req.Header, fmt.Sprintf("msg_%d", n), time.Now(), body); err != nil {
		return err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusAccepted {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}
