package leasing_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// BenchmarkCommand runs commands one after another, in a backend that takes no time. It measures the ledger's part.
func BenchmarkCommand(b *testing.B) {
	for name, url := range map[string]func(b *testing.B) string{
		"SQLite":     func(b *testing.B) string { return "sqlite://" + filepath.Join(b.TempDir(), "ledger.db") },
		"PostgreSQL": func(b *testing.B) string { return postgrestest.New(b) },
	} {
		b.Run(name, func(b *testing.B) {
			store, err := ledger.Open(b.Context(), url(b), ledger.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = store.Close() }()
			backend := fake.New("engine-1", nil)
			engine, err := leasing.New(leasing.Config{Store: store, Executors: []driver.Executor{backend}})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = engine.Close() }()
			_, err = engine.PutEnvironment(b.Context(), sandbox.PutEnvironment{
				ID:    game,
				Owner: "bench",
				EnvironmentSpec: sandbox.EnvironmentSpec{
					Type: sandbox.TypeCatan, Image: "player", Network: sandbox.NetworkNone},
			})
			if err != nil {
				b.Fatal(err)
			}
			l, err := engine.Acquire(b.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "bench"})
			if err != nil {
				b.Fatal(err)
			}
			before := cpuTime(b)
			for b.Loop() {
				backend.Burn(l.Lease.SandboxID, time.Millisecond)
				if _, err := engine.Exec(b.Context(), sandbox.LeaseRef{ID: annLease},
					sandbox.ExecRequest{Command: []string{"true"}}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "µs-CPU/op")
		})
	}
}
