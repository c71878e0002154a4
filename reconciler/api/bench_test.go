package api_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
)

// BenchmarkConditions is the whole path of a signed condition, from 64 clients to the disk.
func BenchmarkConditions(b *testing.B) {
	store, err := ledger.Open(b.Context(), "sqlite://"+filepath.Join(b.TempDir(), "ledger.db"), ledger.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	engine, err := leasing.New(leasing.Config{Store: store, Executors: []sandbox.Executor{fake.New("engine-1", nil)}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = engine.Close() }()
	secret, err := webhook.ParseSecret(webhook.NewSecret())
	if err != nil {
		b.Fatal(err)
	}
	token, err := webhook.MakeToken("bench", webhook.NewToken())
	if err != nil {
		b.Fatal(err)
	}
	handler, err := api.New(api.Config{Service: engine, Tokens: []api.Token{token}, Secrets: webhook.Secrets{secret}})
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()

	var n atomic.Int64
	b.SetParallelism(32) // times GOMAXPROCS, which is 2 where the target is set
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			body := fmt.Appendf(nil, `{"type":"game.finished","timestamp":%q,"data":{"environment_id":"catan-7"}}`, time.Now().Format(time.RFC3339Nano))
			r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, server.URL+"/v1/conditions", bytes.NewReader(body))
			if err == nil {
				r.Header.Set("Content-Type", "application/json")
				err = secret.Sign(r.Header, fmt.Sprintf("msg_%d", n.Add(1)), time.Now(), body)
			}
			if err != nil {
				b.Error(err)
				return
			}
			resp, err := client.Do(r)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusAccepted {
				b.Errorf("status %d", resp.StatusCode)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "receipts/s")
}
