package leasing_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// seats is the number of leases of a table.
const seats = 50

// BenchmarkTable acquires the leases of a table on a backend that answers immediately, by one batch and by single
// acquires, ten at a time, as Terraform does.
func BenchmarkTable(b *testing.B) {
	databases := map[string]func(*testing.B) string{
		"SQLite":     func(b *testing.B) string { return "sqlite://" + filepath.Join(b.TempDir(), "ledger.db") },
		"PostgreSQL": func(b *testing.B) string { return postgrestest.New(b) },
	}
	for name, fresh := range databases {
		b.Run(name+"/Batch", func(b *testing.B) { acquireTables(b, fresh(b), asBatch) })
		b.Run(name+"/Singles", func(b *testing.B) { acquireTables(b, fresh(b), asSingles) })
	}
}

func acquireTables(b *testing.B, url string, acquire func(*testing.B, *leasing.Service, sandbox.AcquireBatch)) {
	store, err := ledger.Open(b.Context(), url, ledger.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	engine, err := leasing.New(leasing.Config{Store: store, Executors: []driver.Executor{fake.New("engine-1", nil)}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = engine.Close() }()
	var took, spent time.Duration
	for n := range b.N {
		table := sandbox.AcquireBatch{EnvironmentID: fmt.Sprint("catan-", n), Owner: "bench", AllOrNone: true}
		for i := range seats {
			table.Items = append(table.Items, sandbox.BatchItem{AgentDID: seat(i)})
		}
		_, err := engine.PutEnvironment(b.Context(), sandbox.PutEnvironment{ID: table.EnvironmentID, Owner: "bench",
			EnvironmentSpec: sandbox.EnvironmentSpec{Type: sandbox.TypeCatan, Image: "player", Network: sandbox.NetworkNone}})
		if err != nil {
			b.Fatal(err)
		}
		before, began := cpuTime(b), time.Now()
		acquire(b, engine, table)
		took, spent = took+time.Since(began), spent+cpuTime(b)-before
	}
	b.ReportMetric(took.Seconds()*1e3/float64(b.N), "ms/table")
	b.ReportMetric(spent.Seconds()*1e3/float64(b.N), "cpu-ms/table")
	b.ReportMetric(0, "ns/op") // it includes creating the environment
}

func asBatch(b *testing.B, engine *leasing.Service, table sandbox.AcquireBatch) {
	if _, err := engine.AcquireBatch(b.Context(), table); err != nil {
		b.Fatal(err)
	}
}

func asSingles(b *testing.B, engine *leasing.Service, table sandbox.AcquireBatch) {
	var working sync.WaitGroup
	free := make(chan struct{}, 10)
	for _, a := range table.Each() {
		working.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			if _, err := engine.Acquire(b.Context(), a); err != nil {
				b.Error(err)
			}
		})
	}
	working.Wait()
}
