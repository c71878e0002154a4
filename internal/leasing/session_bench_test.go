package leasing_test

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
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

// BenchmarkRecording types 100 bytes every 10 ms into commands, with and without a session. The difference is the cost
// of the recording. An op is one second.
func BenchmarkRecording(b *testing.B) {
	for name, url := range map[string]func(b *testing.B) string{
		"SQLite":     func(b *testing.B) string { return "sqlite://" + filepath.Join(b.TempDir(), "ledger.db") },
		"PostgreSQL": func(b *testing.B) string { return postgrestest.New(b) },
	} {
		for _, commands := range []int{1, 20} {
			for _, recorded := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/commands=%d/recorded=%t", name, commands, recorded), func(b *testing.B) {
					record(b, url(b), commands, recorded)
				})
			}
		}
	}
}

func record(b *testing.B, url string, commands int, recorded bool) {
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
	_, err = engine.PutEnvironment(b.Context(), sandbox.PutEnvironment{
		ID:    game,
		Owner: "bench",
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Type: sandbox.TypeCatan, Image: "player", Network: sandbox.NetworkNone},
	})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := engine.Acquire(b.Context(),
		sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "bench"}); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	before := cpuTime(b)
	var typing sync.WaitGroup
	for i := range commands {
		req := sandbox.ExecRequest{Command: []string{"cat"}, Timeout: sandbox.Duration(time.Hour)}
		if recorded {
			req.Session = fmt.Sprintf("s-%d", i)
			if _, err := engine.CreateSession(b.Context(), sandbox.LeaseRef{ID: annLease},
				sandbox.CreateSession{ID: req.Session}); err != nil {
				b.Fatal(err)
			}
		}
		stdin, keys := io.Pipe()
		req.Stdin = stdin
		typing.Go(func() {
			defer keys.Close()
			for range 100 * b.N {
				if _, err := io.WriteString(keys, strings.Repeat("x", 100)); err != nil {
					return
				}
				time.Sleep(10 * time.Millisecond) //nolint:forbidigo // the pace of typing
			}
		})
		typing.Go(func() {
			if _, err := engine.Exec(b.Context(), sandbox.LeaseRef{ID: annLease}, req); err != nil {
				b.Error(err)
			}
		})
	}
	typing.Wait()
	b.ReportMetric((cpuTime(b)-before).Seconds()*1e3/float64(b.N*commands), "cpu-ms/command-s")
	if recorded {
		s, err := engine.GetSession(b.Context(), sandbox.SessionRef{LeaseID: annLease, ID: "s-0"})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(s.LastSequence)/float64(b.N), "events/s")
	}
}
