package leasing_test

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// BenchmarkDeliver measures durable conditions from 64 callers, without HTTP.
func BenchmarkDeliver(b *testing.B) {
	store, err := ledger.Open(b.Context(), "sqlite://"+filepath.Join(b.TempDir(), "ledger.db"), ledger.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	e, err := leasing.New(leasing.Config{Store: store, Executors: []sandbox.Executor{fake.New("engine", nil)}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	if _, err := e.PutEnvironment(b.Context(), sandbox.PutEnvironment{ID: game, EnvironmentSpec: sandbox.EnvironmentSpec{
		Type: sandbox.TypeRPG, Image: "player", Network: sandbox.NetworkNone}}); err != nil {
		b.Fatal(err)
	}
	var n atomic.Int64
	b.SetParallelism(32)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			id := fmt.Sprint(n.Add(1))
			_, err := e.Deliver(b.Context(), sandbox.Delivery{ID: id, Body: []byte(id), Source: "bench", Condition: sandbox.Condition{
				Type: "agent.death", Timestamp: time.Now(), Data: sandbox.ConditionData{EnvironmentID: game, AgentDID: ann}}})
			if err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "receipts/s")
}
